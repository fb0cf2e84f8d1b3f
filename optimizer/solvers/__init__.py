"""The choice of candidates: the problem as arrays, and its solvers."""
