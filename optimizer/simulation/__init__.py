"""Simulator: runs requests through a replica iteration by iteration, and summarises their latencies."""
