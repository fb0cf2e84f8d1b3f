"""Kinds of replicas: one object for each kind of workload, in a table."""
