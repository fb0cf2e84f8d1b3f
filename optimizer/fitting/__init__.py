"""Fits latency models to benchmark runs, and predicts runs with fitted models."""
