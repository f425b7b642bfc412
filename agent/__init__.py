"""The loop: observe, detect, diagnose, decide, act, verify, report; its journal, schedule, commands and wiring.

`agent` owns the words Diagnosis, Decision and Incident. Does not belong here: maths over signals (detectors), code that
changes the world (actuators), knowledge of how vLLM names things (serving).
"""
