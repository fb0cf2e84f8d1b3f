"""Batch servers: a replica that collects requests and answers them together, without tokens."""
