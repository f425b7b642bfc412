"""The scoreboard: how well the warden does against thousands of drawn faults, decoys and long healthy time, with intervals.

Does not belong here: how a fault works (serving.virtual), a single drill with its steady state and its aborts, and what the
warden makes of a window. The scoreboard only draws trials, lets the warden's own loop run over them, and counts.
"""
