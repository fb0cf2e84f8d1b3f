"""Figures as data."""
