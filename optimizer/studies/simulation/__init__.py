"""Simulation of a plan's pools, compared with its predictions."""
