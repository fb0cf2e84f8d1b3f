"""Table of topologies: one for each feature with a module `topology`."""

from collections.abc import Mapping
from types import MappingProxyType

from optimizer.features.table import FEATURES, part_of
from optimizer.topologies.topology import Topology

TOPOLOGIES: Mapping[str, type[Topology]] = MappingProxyType(
    {feature.name: part_of(feature, "topology").TOPOLOGY for feature in FEATURES if feature.has_topology}
)
"""Topologies by the feature that selects them, in the order in which their rows are added to models."""
