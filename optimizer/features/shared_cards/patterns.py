"""Patterns of shared cards: the replicas on one card, and the rate of each server that the card serves.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING

SharingMode = Literal["whole", "shares", "slices", "time"]
"""Sharing mode of a card: entire card for one replica, shares of its compute, slices, or time."""
MEMORY_SLICES, COMPUTE_SLICES = 8, 7
"""Number of memory and compute slices of a card."""
MAX_VISITED = 50_000
"""Maximum number of combinations of replicas on a card that are evaluated."""


class Occupant(NamedTuple):
    """A part of a card on which one replica of a server can run, with the replica's maximum rate."""

    server: int
    """Index of the server in the planned system."""
    place: int
    """Index of the accelerator in the auxiliary system: the card, a share of it, or a slice."""
    mode: SharingMode
    """Type of the part: a full card, a share, a slice, or a card shared in time."""
    max_batch: int
    rate_rps: float
    """Maximum rate within targets of one replica that is alone on this part [requests/s]."""
    uses: tuple[float, float]
    """Amounts used of a card: memory [GB] and share of the compute, or memory and compute slices."""
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class CardPattern:
    """A combination of replicas that share one card."""

    accelerator: int
    """Index of the card's accelerator in the planned system."""
    mode: SharingMode
    occupants: tuple[tuple[Occupant, int], ...]
    """Occupants on the card, each with its number of replicas."""
    rates: tuple[float, ...]
    """Rate that one card serves with all replicas of each occupant together [requests/s]."""

    def rate_of(self, server: int) -> float:
        """Return the rate that one card serves of a server [requests/s]."""
        pairs = zip(self.occupants, self.rates, strict=True)
        return sum(rate for (occupant, _), rate in pairs if occupant.server == server)

    def only(self, servers: frozenset[int]) -> "CardPattern":
        """Return the pattern without the occupants of other servers."""
        pairs = zip(self.occupants, self.rates, strict=True)
        kept = [(occupant, rate) for occupant, rate in pairs if occupant[0].server in servers]
        return replace(
            self, occupants=tuple(occupant for occupant, _ in kept), rates=tuple(rate for _, rate in kept)
        )


@dataclass(frozen=True, slots=True)
class SharedCards:
    """All patterns of a system's shared cards."""

    patterns: tuple[CardPattern, ...]
    servers: IntArray
    """Indices of the servers that can be served on shared cards, shape (K,)."""
    load_rps: FloatArray
    """Loads of the servers that can be served on shared cards [requests/s], shape (K,)."""
    names: tuple[str, ...]
    """Names of all servers of the planned system."""
    system: System
    """The auxiliary system, in which each part of a card is an accelerator, for sizing and measuring."""
    arrays: SystemArrays
    """The auxiliary system as arrays."""
    card_of: Mapping[str, str]
    """Name of the card of each accelerator of the auxiliary system."""

    @property
    def rates_rps(self) -> FloatArray:
        """Rate that one card of each pattern serves of each server [requests/s], shape (K, P) (eq. 231)."""
        rates = [[one.rate_of(s) for one in self.patterns] for s in self.servers.tolist()]
        return np.array(rates).reshape(len(self.servers), len(self.patterns))


def maximal(
    occupants: Sequence[Occupant], limits: tuple[float, float], most: int
) -> list[tuple[int, ...]] | None:
    """Return all maximal combinations as replicas per occupant: none has space for another replica.

    Args:
        limits: amount of a card for each of the two quantities that occupants use.
        most: maximum number of combinations; if there are more, None is returned.
    """
    result: list[tuple[int, ...]] = []
    for visited, (counts, left) in enumerate(_filled(occupants, 0, limits)):
        if not any(_fits(occupant, left) for occupant in occupants):
            result.append(counts)
        if len(result) > most or visited > MAX_VISITED:
            return None
    return result


def _filled(
    occupants: Sequence[Occupant], at: int, left: tuple[float, float]
) -> Iterator[tuple[tuple[int, ...], tuple[float, float]]]:
    """Yield replica counts of the occupants from position `at` on, and the remaining amounts of the card.

    The last occupant always gets as many replicas as fit.
    """
    if at == len(occupants):
        yield (), left
        return
    count = 0
    while True:
        more = _fits(occupants[at], left)
        if not more or at < len(occupants) - 1:
            for rest, remaining in _filled(occupants, at + 1, left):
                yield (count, *rest), remaining
        if not more:
            return
        left = (left[0] - occupants[at].uses[0], left[1] - occupants[at].uses[1])
        count += 1


def _fits(occupant: Occupant, left: tuple[float, float]) -> bool:
    return all(use <= rest + ROUNDING for use, rest in zip(occupant.uses, left, strict=True))
