"""Versions of a server, with a share of its load each."""
