"""Feature: versions of a server's model, each with a share of the load."""
