"""Running drills: gate, inject, watch, always undo, verify, score, record; and schedules of them.

`judge` and `gate` are pure; `runner` has the order of things; `fleet` is the port behind which every kind of fleet stands.
Does not belong here: what a drill is (runbooks.drill), how faults are made (serving.faults), the scoreboard over thousands.
"""
