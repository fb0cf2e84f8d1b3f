"""Continuous batching in closed form: iterations, prompts and batch slots, means and percentiles."""
