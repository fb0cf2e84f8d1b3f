"""Solvers of the planning problem, which is given as arrays: they choose candidates for every server."""
