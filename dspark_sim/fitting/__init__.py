"""From a measured sweep to a system that can be simulated, and back to every row of the sweep."""
