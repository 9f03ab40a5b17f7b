"""A discrete-event throughput simulator and scheduler lab for DSpark speculative decoding."""

__version__ = "0.1.0"
