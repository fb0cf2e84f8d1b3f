"""The table of topologies: each topology is a module in this package plus an entry here."""

from optimizer.topologies.routes import Routing
from optimizer.topologies.shared_cards import CardUnits
from optimizer.topologies.topology import Topology

TOPOLOGIES: tuple[type[Topology], ...] = (CardUnits, Routing)
"""All topologies, in the order in which models have their rows."""
