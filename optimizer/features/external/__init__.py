"""Feature: external services, which are paid per token and replace replicas."""
