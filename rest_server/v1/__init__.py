"""The project's own API, under /v1."""
