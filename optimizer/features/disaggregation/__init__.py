"""Feature: prefill and decode pools of a server, instead of replicas that do both."""
