"""Simulator: run requests through a replica iteration by iteration, and summarise their latencies."""
