"""One writer: of several wardens over one cell exactly one acts and writes; the others watch and wait.

A leader holds a record in a store that all of them share (a Lease of Kubernetes, or a row in PostgreSQL) and renews it. It
leads by a mandate: a term and a moment of its own monotonic clock, before which nobody else can have taken over. Whoever
leads later has a higher term, and the journal refuses writes of a lower one.

Does not belong here: what a leader does (agent.loop), what the term protects (agent.journal).
"""
