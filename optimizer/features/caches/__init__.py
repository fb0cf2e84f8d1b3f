"""Feature: result caches, which answer a share of the requests in front of the replicas."""
