"""Feature: reserves, which are headroom, spare replicas and replicas for availability targets."""
