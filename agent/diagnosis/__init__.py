"""Findings -> Diagnoses: the cause catalogue and the scoring over the topology. Pure.

Does not belong here: maths over signals (detectors), choosing an action (agent.decision).
"""
