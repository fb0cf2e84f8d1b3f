"""Starter documents: complete, commented system documents from a few facts, and prices from files."""
