"""Workload: the trace of acceptance and confidence, its format, calibration, statistics and synthesis."""
