"""Loads by the hour: what to reserve for the whole time, and what to rent in each hour."""
