"""The choice among candidates: the problem as arrays, and the solvers that answer it."""
