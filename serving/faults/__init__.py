"""Faults on purpose: what can be broken, how, and how each is taken back.

Does not belong here: faults inside the simulated engine (serving.simulator keeps those and takes orders over HTTP), load
patterns (serving.load), and planning or judging a drill (runbooks.drills).
"""
