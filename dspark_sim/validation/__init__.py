"""Validation cases: what somebody measured, what the simulator says of it, and the error."""
