"""Is a rule lossless? The overwrite test, an exact enumeration, and a live pair; one verdict.

Start with verdict.py; worlds.py draws the batches, overwrite.py looks for a counterexample, exact.py
writes out the law of the output in fractions, live.py drives a small pair.
"""
