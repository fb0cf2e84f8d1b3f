"""Kinds of replicas (token batching, batch servers): one object for each kind, in a table."""
