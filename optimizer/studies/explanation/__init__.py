"""Explanations of a plan: what-if questions, answered by solving again with one change."""
