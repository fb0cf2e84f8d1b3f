"""Dynamic-batching servers: replicas that collect non-LLM requests and serve them in batches."""
