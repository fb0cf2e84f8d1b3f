"""Feature: pools by prompt length, each of which serves some request shapes of a server."""
