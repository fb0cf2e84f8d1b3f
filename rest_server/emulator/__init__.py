"""Emulated fleet: the replicas of a plan as live HTTP servers, run by the simulator's engine."""
