"""Checks of a plan, with one module for each part of the plan."""
