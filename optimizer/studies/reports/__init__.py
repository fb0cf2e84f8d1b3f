"""The data of a report on a plan."""
