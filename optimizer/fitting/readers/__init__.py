"""Readers of benchmark reports, one file per format; `table` lists them all."""
