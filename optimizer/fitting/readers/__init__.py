"""Readers of benchmark reports, one module for each format; `table` lists all."""
