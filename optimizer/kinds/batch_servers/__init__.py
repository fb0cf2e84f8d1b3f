"""Batch servers: replicas with dynamic batching, which collect non-LLM requests and serve them in batches."""
