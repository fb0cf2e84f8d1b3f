"""Starter documents: a complete, commented system document from a few facts, and prices from files."""
