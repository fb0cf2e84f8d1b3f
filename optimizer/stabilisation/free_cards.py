"""Free cards by accelerator type, and the number of replicas that fit on them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from optimizer.features.nodes.limit import IN_NODES, Nodes
from optimizer.limits.table import limit_named
from optimizer.plan.placements import PlacementGroup
from optimizer.spec.placed import PlacedUnits, placed, placed_cards
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING


@dataclass(frozen=True, slots=True)
class FreeCards:
    """Free cards and other free amounts of a system; a negative number is a shortage."""

    system: System
    free: dict[str, int]
    """Free cards by accelerator type; unlimited types are absent."""
    limits: dict[tuple[str, str], float] = field(default_factory=dict)
    """Remaining amounts of limits other than cards, by limit and item; only those of nodes are always
    considered.
    """

    @classmethod
    def of(cls, system: System) -> "FreeCards":
        """Return all cards of a system as free."""
        type_names = {item.type for item in system.accelerators.values()} | system.capacity.keys()
        limits = {type_name: system.card_limit(type_name) for type_name in sorted(type_names)}
        in_nodes = {
            (IN_NODES, item): amount for pool in system.node_pools for item, amount in pool.amounts.items()
        }
        free = {type_name: limit for type_name, limit in limits.items() if limit is not None}
        return cls(system, free, in_nodes)

    @classmethod
    def beside(cls, system: System, rows: Iterable[PlacementGroup]) -> "FreeCards":
        """Return the cards of a system except the shared cards that placements use."""
        cards = cls.of(system)
        for row in rows:
            if row.mode == "shared":
                type_name = system.accelerators[row.spot.accelerator].type
                if type_name in cards.free:
                    cards.free[type_name] -= row.count
                if cards.limits:
                    used = PlacedUnits(system, [placed_cards(system, row.spot.accelerator, row.count, "")])
                    for key in cards.limits:
                        cards.limits[key] -= used.used(Nodes(), key[1])
        return cards

    def copy(self) -> "FreeCards":
        """Return an independent copy."""
        return FreeCards(self.system, dict(self.free), dict(self.limits))

    @property
    def is_short(self) -> bool:
        """Whether any limit is exceeded."""
        return min(self.free.values(), default=0) < 0 or min(self.limits.values(), default=0.0) < -ROUNDING

    def take(self, server: str, accelerator: str, replicas: int) -> None:
        """Mark the cards of some replicas as used; a negative number frees them."""
        type_name, each = self.system.units_per_replica(server, accelerator)
        if type_name in self.free:
            self.free[type_name] -= each * replicas
        for key, use in self._uses(server, accelerator).items():
            self.limits[key] -= use * replicas

    def _uses(self, server: str, accelerator: str) -> dict[tuple[str, str], float]:
        """Return the amounts of limits other than cards that a replica uses, by limit and item.

        Extra replicas of roll-outs are not included.
        """
        if not self.limits:
            return {}
        one = PlacedUnits(self.system, [placed(self.system, server, accelerator, 1)._replace(surge=0.0)])
        known = ((limit_named(name), item) for name, item in self.limits)
        return {(limit.name, item): one.used(limit, item) for limit, item in known if limit}

    def take_all(self, server: str, replicas: Mapping[str, int], sign: int = 1) -> None:
        """Mark the cards of a server's replicas, by accelerator, as used; with sign -1, free them."""
        for accelerator, number in replicas.items():
            self.take(server, accelerator, sign * number)

    def fitting(self, server: str, accelerator: str, wanted: int) -> int:
        """Return the number of replicas, at most `wanted`, that fit on the free cards and the limits.

        Args:
            server: name of the server.
            accelerator: name of the accelerator.
            wanted: maximum number.
        """
        type_name, each = self.system.units_per_replica(server, accelerator)
        if type_name in self.free and each:
            wanted = min(wanted, max(0, self.free[type_name]) // each)
        for key, use in self._uses(server, accelerator).items():
            if use > 0:
                wanted = min(wanted, int(max(0.0, self.limits[key]) / use + ROUNDING))
        return wanted

    def missing(self, server: str, accelerator: str) -> int:
        """Return the number of replicas to remove so that no card of their type is missing."""
        type_name, each = self.system.units_per_replica(server, accelerator)
        shortage = max(0, -self.free.get(type_name, 0))
        gone = -(-shortage // each) if each else 0
        for key, use in self._uses(server, accelerator).items():
            if key[0] == IN_NODES and use > 0:
                gone = max(gone, ceil(-self.limits[key] / use - ROUNDING))
        return gone
