"""Bulk-service queue: a dynamic-batching server that collects requests and serves them together."""
