"""The highest rate that a service sustains within its objectives, by bisection over the rate of arrivals.

A rate is sustained if two things hold.

1. *The service keeps up.* What it does with a backlog that never ends is measured (all requests at once, the
   time between a quarter of the completions and the end of the queue): the *load knee*. Above it the
   queue grows without end, whatever the objectives say of a run of finite length.
2. *The objectives hold*: each quantile, over the measured requests of all replications together, keeps its
   bound. Pooled, because a p99 of one short run rarely meets the run's worst hour, and reads too low.

Every policy and every rate meets the same requests in the same order (common random numbers); a rate is that
of the arrivals as drawn, all of them over their time. The interval leaves out one replication after the
other (jackknife). The length of a run is checked on requests that the search has not seen: the second half
of runs twice as long, at the rate found; where that misses by more than its interval, the search is repeated
with the longer runs.
"""
