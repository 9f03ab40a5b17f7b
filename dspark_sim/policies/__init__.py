"""Verification policies: pure functions of a batch view to verify lengths, one file a rule."""
