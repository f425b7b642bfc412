"""Two wardens as processes over one control plane and one journal, struck in the middle of their actions.

Election, term, journal, executor and hands are the warden's own. What is to be done is made up: items, each of which is two
writes to a node of the API, one after the other, so that an action has a middle. Whether anything was done twice, and
whether a write of an earlier term came after one of a later, is read from the API server's own audit log.
"""
