"""Support for tests of the Helm chart: the helm program, and what of the chart is made from other files.

Does not belong here: tests (they lie in tests/chart).
"""
