"""The command line: load, call, write, print. One module a command; see :mod:`dspark_sim.cli.app`."""
