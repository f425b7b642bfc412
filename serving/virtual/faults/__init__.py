"""What can go wrong in a fleet in virtual time, each built from its mechanism, and what only looks like it (decoys).

Does not belong here: what a fault should be called and what is right to do about it (agent.scoreboard).
"""
