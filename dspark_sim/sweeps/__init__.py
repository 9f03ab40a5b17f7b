"""Many points over processes: what to compute, who computes it, where finished points are kept."""
