"""``python -m dspark_sim``."""

from dspark_sim.cli.app import main

main()
