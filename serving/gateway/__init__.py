"""The front door: an OpenAI-compatible reverse proxy over the engines.

It chooses the lesser loaded of two engines, leaves out drained and ejected ones, tries another engine while the client has
not seen a byte, streams answers through as they come, and says on `/metrics` what it saw of each engine. A second
listener takes orders (drain, undrain, weight), each under an operation key.

A request passes `handle` in `proxy` as: read, route by model, choose, try, answer. Tenants, quotas, lanes and degradation
tiers belong between "route" and "choose"; `Asked` is where what they need is read off the request.

Does not belong here: judging an engine's health beyond what its answers to users show (detectors), deciding to drain it
(agent), starting or stopping engines (serving.engines, actuators).
"""
