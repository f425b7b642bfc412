"""A simulated vLLM engine: continuous batching on a clock, behind vLLM's HTTP routes, metrics and spans."""
