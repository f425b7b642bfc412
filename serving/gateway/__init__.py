"""The front door: an OpenAI-compatible reverse proxy over the engines."""
