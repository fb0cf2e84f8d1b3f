"""The table of topologies: each topology is a module in this package plus an entry here."""

from collections.abc import Mapping
from types import MappingProxyType

from optimizer.spec.features import ROUTES, SHARED_CARD
from optimizer.topologies.card_topology import CardUnits
from optimizer.topologies.route_topology import Routing
from optimizer.topologies.topology import Topology

TOPOLOGIES: Mapping[str, type[Topology]] = MappingProxyType({SHARED_CARD: CardUnits, ROUTES: Routing})
"""All topologies by the feature that selects them, in the order in which models have their rows."""
