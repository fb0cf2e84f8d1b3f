"""Comparison of two plans."""
