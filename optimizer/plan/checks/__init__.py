"""Checks of a plan, one module for each part of it."""
