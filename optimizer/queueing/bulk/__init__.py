"""The bulk-service queue: a server that collects requests and answers them together."""
