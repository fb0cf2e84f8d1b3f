"""REST service around `optimizer.pipeline`; it contains no planning logic."""
