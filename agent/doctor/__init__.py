"""The examination of one's own set-up: files, reachability, credentials, clocks, versions, signals, with what to do.

Does not belong here: whether the fleet itself is well (agent.checkup, the loop), changing or sending anything unasked.
"""
