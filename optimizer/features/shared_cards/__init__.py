"""Feature: servers that share cards by shares of the compute, by slices, or in time."""
