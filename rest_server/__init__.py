"""The service: a thin shell around `optimizer.pipeline`. It contains no planning logic."""
