"""Feature: price tiers of accelerators, and prices of more cards of a type."""
