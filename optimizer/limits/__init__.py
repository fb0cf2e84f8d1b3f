"""Limits shared by all servers: one object for each, in a table."""
