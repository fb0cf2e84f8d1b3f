"""Feature: whole nodes, which are bought or rented with all their cards."""
