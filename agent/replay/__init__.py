"""Replay: the loop itself over telemetry of the past, what it would have done, and how that compares with the truth.

Does not belong here: detecting, diagnosing and deciding (the stages are those of the live loop), and reading recordings
(serving.telemetry).
"""
