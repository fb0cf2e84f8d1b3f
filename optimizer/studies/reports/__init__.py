"""A plan as a page shows it."""
