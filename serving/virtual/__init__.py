"""Whole fleets in virtual time: engines, GPUs, nodes, the front door and its users, as columns moved by their own clock.

Does not belong here: judging what is seen (detectors, agent), and changing it to repair it (actuators).
"""
