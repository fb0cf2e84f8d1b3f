"""Limits that all servers share, such as cards and budget: one object for each, in a table."""
