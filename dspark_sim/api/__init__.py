"""The simulator from Python: a dozen names, answers as pandas frames with the unit in the column name.

Import them from :mod:`dspark_sim`; this package is loaded when the first of them is used. Whatever is
wrong with an input raises :class:`dspark_sim.errors.InputError` with one line that says what.
"""

from dspark_sim.api.pictures import plot_frontier, plot_hardware, plot_load, write_report
from dspark_sim.api.questions import Recommendation, audit_policy, best_setting, bound, frontier
from dspark_sim.api.simulation import Run, list_policies, load_hardware, load_trace, read_run, run

__all__ = [
    "Recommendation",
    "Run",
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
