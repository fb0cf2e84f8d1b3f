"""Declares places as a feature: its document fields, unsupported fields and options, and checks."""

from optimizer.features.places.streams import place_problems
from optimizer.spec.feature import Feature

PLACES = Feature(
    "places",
    fields=("place", "may_serve_from"),
    fields_of_accelerators=("place",),
    faults=place_problems,
)
