"""Cards by accelerator type: how many are free, and how many replicas they are enough for."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.spec.system import System


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of a system that are free; a number below zero is missing."""

    system: System
    free: dict[str, int]
    """By accelerator type; types without a limit are absent."""

    @classmethod
    def of(cls, system: System) -> "Cards":
        """Return all cards that exist."""
        if system.options.unlimited:
            return cls(system, {})
        kinds = {item.type for item in system.accelerators.values()} | system.capacity.keys()
        return cls(system, {kind: system.capacity.get(kind, 0) for kind in sorted(kinds)})

    def copy(self) -> "Cards":
        """Return a copy that can be changed alone."""
        return Cards(self.system, dict(self.free))

    @property
    def is_short(self) -> bool:
        """Whether more cards are taken than exist."""
        return min(self.free.values(), default=0) < 0

    def take(self, server: str, accelerator: str, replicas: int) -> None:
        """Take the cards of some replicas; of a negative number, give them back."""
        kind, each = self.system.units_per_replica(server, accelerator)
        if kind in self.free:
            self.free[kind] -= each * replicas

    def take_all(self, server: str, replicas: Mapping[str, int], sign: int = 1) -> None:
        """Take the cards of replicas by accelerator, or give them back."""
        for accelerator, number in replicas.items():
            self.take(server, accelerator, sign * number)

    def most(self, server: str, accelerator: str, wanted: int) -> int:
        """Return the number of replicas, up to the wanted one, that the free cards are enough for."""
        kind, each = self.system.units_per_replica(server, accelerator)
        if kind not in self.free or not each:
            return wanted
        return min(wanted, max(0, self.free[kind]) // each)

    def missing(self, server: str, accelerator: str) -> int:
        """Return the number of replicas whose cards would make up for those that are missing."""
        kind, each = self.system.units_per_replica(server, accelerator)
        lacking = max(0, -self.free.get(kind, 0))
        return -(-lacking // each) if each else 0
