"""A simulated vLLM engine: continuous batching on a clock, behind vLLM's HTTP routes, metrics and spans.

The model (`batching`, `blocks`, `timing`, `frontend`, `measures`) is pure: it takes `now` as a value and does no input
or output, so that the same code can later drive thousands of engines in virtual time. The rim (`driver`, `server`,
`faults`, `spans` and the `*_routes`) puts one such model behind a real port in real time.

What does not belong here: starting and stopping engine processes (`serving.engines`), making load (`serving.load`) and
knowledge of the warden.
"""
