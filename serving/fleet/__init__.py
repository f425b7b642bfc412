"""The map: which entities the fleet has and how they are related.

Does not belong here: anything measured (serving.telemetry), anything that starts a process (serving.engines).
"""
