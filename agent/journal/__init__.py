"""The journal: the record of every incident event, operation and switch, from which a restarted warden goes on.

The port is `agent.journal.port`; it is imported alone where no database is needed.

Does not belong here: what an event means (agent.incident), how it is told to people (agent.report).
"""
