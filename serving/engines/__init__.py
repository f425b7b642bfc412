"""Engines: starting, finding and stopping real vLLM processes and simulated ones on this machine.

Does not belong here: what an engine does once it runs (serving.simulator, vLLM itself), whether it should be restarted
(agent.decision), and breaking it on purpose (serving.faults), but for the hook that a real engine must carry inside.
"""
