"""Continuous batching in closed form: iterations, prompts and places, means and percentiles."""
