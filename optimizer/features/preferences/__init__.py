"""Preferred accelerators of servers."""
