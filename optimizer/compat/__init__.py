"""Formats that only clients of the reference family use."""
