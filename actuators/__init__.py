"""Action -> Outcome: the only code that changes the world, idempotent, one file a kind of target.

`actuators` owns the words Action and Outcome. Does not belong here: deciding whether to act (agent.decision), reading
telemetry windows, knowing detectors. An actuator returns outcomes; it does not raise.
"""
