"""Engines: starting, finding and stopping real vLLM processes and simulated ones on this machine."""
