"""A look at a fleet that is known by a few URLs only: what stands there, the map its labels tell, and what is wrong now.

Does not belong here: detecting and diagnosing (detectors, agent.diagnosis: the same as in the loop), repairing anything.
"""
