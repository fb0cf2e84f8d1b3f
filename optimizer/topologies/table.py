"""The table of topologies: those of features with a `coupling`."""

from collections.abc import Mapping
from types import MappingProxyType

from optimizer.features.table import FEATURES, part_of
from optimizer.topologies.topology import Topology

TOPOLOGIES: Mapping[str, type[Topology]] = MappingProxyType(
    {feature.name: part_of(feature, "coupling").COUPLING for feature in FEATURES if feature.has_coupling}
)
"""All topologies by the feature that selects them, in the order in which models have their rows."""
