"""The serving model: SimPy carries time, one event an engine step; state lies in flat arrays.

Start with replica.py (the step): decoding.py has its rounds, deciding.py asks the policy, prefill.py
and kv_blocks.py know prompts and memory, recorder.py writes it down. sources.py and routing.py bring
the requests, serving.py puts replicas on the clock, simulator.py is the door.
"""
