"""Servers that share the replicas of one queue."""
