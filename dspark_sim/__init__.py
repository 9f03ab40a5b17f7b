"""A discrete-event throughput simulator and scheduler lab for DSpark speculative decoding.

From Python, about a dozen names (``dspark_sim.api``), loaded when the first of them is used::

    import dspark_sim as ds

    run = ds.run("chat", "h800", concurrency=[1, 16, 64, 256], seeds=2)
    ds.frontier(run, sla=[80, 120])  # a pandas frame
    ds.plot_frontier(run)  # a matplotlib figure

To read the code, start with ``schema.py``, then ``engine/replica.py``, then ``policies/dspark.py``.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Recommendation",
    "Run",
    "__version__",
    "audit_policy",
    "best_setting",
    "bound",
    "frontier",
    "list_policies",
    "load_hardware",
    "load_trace",
    "plot_frontier",
    "plot_hardware",
    "plot_load",
    "read_run",
    "run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Return a public name, importing what stands behind it now: pandas takes a second that few need."""
    if name not in __all__:
        raise AttributeError(f"module 'dspark_sim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("dspark_sim.api"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
