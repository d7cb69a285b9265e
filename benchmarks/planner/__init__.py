"""The planner's benchmarks: exactness, peers on the same inputs, makespan. `python -m benchmarks.planner` runs them."""
