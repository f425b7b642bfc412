"""Window -> Findings: pure functions over all entities at once, one file a family.

`detectors` owns the word Finding. Does not belong here: causes (a finding is a symptom; agent.diagnosis ranks causes),
reading the clock, any input or output. No detector knows another, and none knows an actuator.
"""
