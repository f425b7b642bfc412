"""Record: a fleet's telemetry into a folder that replays, out of a Prometheus or scraped on the spot.

Does not belong here: the format of the folder (serving.telemetry.recorder), replaying it (agent.replay).
"""
