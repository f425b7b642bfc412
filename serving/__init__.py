"""The fleet itself: its map, its telemetry, its front door, its engines, and a faithful simulator of all of these.

`serving` owns two words that every other room uses: `Topology` (serving.fleet) and `Window` (serving.telemetry).

Does not belong here: judging whether a signal is healthy (detectors), changing the fleet on purpose to repair it
(actuators), or anything that knows what an incident is (agent). `serving` imports no other room.
"""
