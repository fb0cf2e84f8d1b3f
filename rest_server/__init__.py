"""The service: a thin shell around `optimizer.pipeline`. It holds no planning of its own."""
