"""Offline work with a deadline."""
