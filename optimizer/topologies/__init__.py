"""Topologies: replicas that several servers share or serve together, in the form that solvers need."""
