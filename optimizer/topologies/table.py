"""The table of topologies: each topology is a module in this package plus an entry here."""

from collections.abc import Mapping
from types import MappingProxyType

from optimizer.features.routes.coupling import Routing
from optimizer.features.shared_cards.coupling import CardUnits
from optimizer.spec.features import ROUTES, SHARED_CARD
from optimizer.topologies.topology import Topology

TOPOLOGIES: Mapping[str, type[Topology]] = MappingProxyType({SHARED_CARD: CardUnits, ROUTES: Routing})
"""All topologies by the feature that selects them, in the order in which models have their rows."""
