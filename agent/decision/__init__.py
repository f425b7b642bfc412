"""Incident + runbook + fresh state -> Decision: guards, budgets, breaker, verification. Pure.

Does not belong here: carrying a decision out (agent.act), reading files or clocks.
"""
