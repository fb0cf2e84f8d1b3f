"""Feature: servers of one model that share a queue and its replicas."""
