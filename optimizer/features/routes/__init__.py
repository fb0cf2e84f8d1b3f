"""Feature: routes, in which a router divides requests between a small and a large model."""
