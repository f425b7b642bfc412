"""Telling people and machines: Slack, webhooks, log and metrics as views of the journal; all wording in one module.

Does not belong here: deciding what happens next. A sink that fails costs only its own message.
"""
