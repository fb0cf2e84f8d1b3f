"""Mirrored servers as a feature: their field, what they do not support, and what they go with."""

from optimizer.spec.feature import Feature

MIRRORED = Feature(
    "mirrored",
    fields=("mirrored",),
    goes_with=frozenset({"places"}),
    refused_options={"milp_solver": "the greedy solver cannot plan twins"},
    has_topology=True,
    has_checks=True,
)
