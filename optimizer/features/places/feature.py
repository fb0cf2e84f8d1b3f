"""Places as a feature: its fields, what it does not support, and its checks."""

from optimizer.features.places.streams import place_problems
from optimizer.spec.feature import Feature

PLACES = Feature(
    "places",
    fields=("place", "may_serve_from"),
    fields_of_accelerators=("place",),
    faults=place_problems,
)
