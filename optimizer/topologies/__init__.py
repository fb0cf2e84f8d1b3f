"""Topologies: replicas of several servers that serve together, as a solver needs them."""
