"""Emulated fleet: the replicas of a plan as live HTTP servers, which the simulator's engine runs."""
