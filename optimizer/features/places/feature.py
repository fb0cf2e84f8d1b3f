"""What the feature says of itself."""

from optimizer.features.places.streams import place_problems
from optimizer.spec.feature import Feature

PLACES = Feature(
    "places",
    field="place",
    of_server=lambda server: server.place is not None or server.may_serve_from is not None,
    of_accelerator=lambda accelerator: accelerator.place is not None,
    faults=place_problems,
)
