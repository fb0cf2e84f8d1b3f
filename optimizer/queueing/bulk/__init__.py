"""Bulk-service queues: batch servers, which collect requests (dynamic batching) and serve them together."""
