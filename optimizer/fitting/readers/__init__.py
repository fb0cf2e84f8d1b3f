"""Readers of benchmark reports: one file a format, each from text to runs; `table` knows them all."""
