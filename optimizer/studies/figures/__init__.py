"""Figures of systems and plans, as data."""
