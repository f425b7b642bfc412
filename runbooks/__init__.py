"""Runbooks as data: for this cause, under these guards, these steps, verified so, undone so; their schema and loader.

`runbooks` owns the word Runbook. Does not belong here: carrying a runbook out (agent) or the code of a step (actuators).
"""
