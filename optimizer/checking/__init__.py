"""Checking: all errors in documents, and warnings about valid systems that are probably not meant."""
