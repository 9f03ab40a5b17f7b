"""The step compiled by numba: shipped rules, any prefill but a pool of its own; bit for bit what numpy says.

Nothing here is imported unless it is asked for: numba is an optional extra, and starting it costs half a
second. :mod:`.layout` names the state, :mod:`.selection`, :mod:`.decide`, :mod:`.slots`, :mod:`.grow`,
:mod:`.admit` and :mod:`.commit` are the step, :mod:`.loop` runs it ahead, :mod:`.machine` is what the
rest of the engine sees.
"""
