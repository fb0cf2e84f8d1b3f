"""Separate servers: two servers that run on no common accelerator type."""
