"""The serving model: SimPy carries time, one event an engine step; state lies in flat arrays.

Start with replica.py (the step); replay.py is what it reads, batching.py who runs, simulator.py the
door.
"""
