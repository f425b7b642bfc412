"""The built-in load generator: users, well-behaved and otherwise.

`patterns` and `arrivals` are pure: who comes when and wants what, from a seed. `runner` sends it, in an open loop: arrivals
do not wait for answers, as users do not. `tally` keeps a bounded summary.

Does not belong here: judging how the fleet coped (detectors, runbooks.drills), or anything that breaks engines other
than by requests (serving.faults).
"""
