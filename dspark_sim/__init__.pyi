"""What type checkers read: the public names, which the module itself imports only when they are used."""

from dspark_sim.api import Recommendation as Recommendation
from dspark_sim.api import Run as Run
from dspark_sim.api import audit_policy as audit_policy
from dspark_sim.api import best_setting as best_setting
from dspark_sim.api import bound as bound
from dspark_sim.api import frontier as frontier
from dspark_sim.api import list_policies as list_policies
from dspark_sim.api import load_hardware as load_hardware
from dspark_sim.api import load_trace as load_trace
from dspark_sim.api import plot_frontier as plot_frontier
from dspark_sim.api import plot_hardware as plot_hardware
from dspark_sim.api import plot_load as plot_load
from dspark_sim.api import read_run as read_run
from dspark_sim.api import run as run
from dspark_sim.api import write_report as write_report

__version__: str
