"""Speed of the simulator, as ratios against a pinned loop that runs interleaved with it.

``python -m benchmarks`` measures everything and writes ``benchmarks/results.json``.
"""
