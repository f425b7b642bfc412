"""Telemetry: what the fleet says of itself, read through one port and handed on as a frozen, columnar Window.

Does not belong here: thresholds and verdicts (detectors). A missing value stays missing: nothing in this package turns
an absent series into a zero.
"""
