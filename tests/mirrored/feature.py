"""What the feature says of itself."""

from optimizer.features.mirrored.fields import is_mirrored
from optimizer.spec.feature import Feature

MIRRORED = Feature(
    "mirrored",
    field="mirrored",
    of_server=is_mirrored,
    goes_with=frozenset({"places"}),
    refused_options={"milp_solver": "the greedy solver cannot plan twins"},
    has_coupling=True,
    has_checks=True,
)
