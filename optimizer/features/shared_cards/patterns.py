"""Patterns of shared cards: the servers on a card, and the rate of each that one card serves.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING

SharingMode = Literal["whole", "shares", "slices", "time"]
"""Sharing mode of a card: none, shares of its compute, slices, or time."""
MEMORY_SLICES, COMPUTE_SLICES = 8, 7
"""Number of memory and compute slices of a card."""
MAX_VISITED = 50_000
"""Maximum number of combinations of replicas on a card that are evaluated."""


class Seat(NamedTuple):
    """A way to run one replica of a server on a part of a card."""

    server: int
    """Index in the planned system."""
    place: int
    """Index of the accelerator in the sized system: the card, the card in a share, or a slice."""
    mode: SharingMode
    """Whether the seat is a full card, a share or a slice."""
    max_batch: int
    rate_rps: float
    """Largest rate of one replica within its targets, alone on its part of the card [requests/s]."""
    uses: tuple[float, float]
    """Memory [GB] and share of the card, or memory and compute slices."""
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class CardPattern:
    """Servers that share one card."""

    accelerator: int
    """The card, an index in the planned system."""
    mode: SharingMode
    seats: tuple[tuple[Seat, int], ...]
    """Each seat with its number of replicas."""
    rates: tuple[float, ...]
    """Rate that one card serves in each seat, all its replicas together [requests/s]."""

    def rate_of(self, server: int) -> float:
        """Return the rate of a server that one card serves [requests/s]."""
        pairs = zip(self.seats, self.rates, strict=True)
        return sum(rate for (seat, _), rate in pairs if seat.server == server)

    def only(self, servers: frozenset[int]) -> "CardPattern":
        """Return the pattern without the seats of other servers."""
        kept = [i for i, (seat, _) in enumerate(self.seats) if seat.server in servers]
        return CardPattern(
            self.accelerator,
            self.mode,
            tuple(self.seats[i] for i in kept),
            tuple(self.rates[i] for i in kept),
        )


@dataclass(frozen=True, slots=True)
class SharedCards:
    """Patterns of the shared cards of a system."""

    patterns: tuple[CardPattern, ...]
    servers: IntArray
    """Servers that can be served on shared cards, shape (K,)."""
    load_rps: FloatArray
    """Their loads [requests/s], shape (K,)."""
    names: tuple[str, ...]
    """All servers of the planned system."""
    system: System
    """The system in which each part of a card is an accelerator, for sizing and measuring."""
    arrays: SystemArrays
    """The patterns as arrays."""
    card_of: Mapping[str, str]
    """Card of each of these accelerators, by name."""

    @property
    def rates_rps(self) -> FloatArray:
        """Rate of each server that one card of each pattern serves [requests/s], shape (K, P) (eq. 231)."""
        rates = [[one.rate_of(s) for one in self.patterns] for s in self.servers.tolist()]
        return np.array(rates).reshape(len(self.servers), len(self.patterns))


def maximal(seats: Sequence[Seat], limits: tuple[float, float], most: int) -> list[tuple[int, ...]] | None:
    """Return the numbers of replicas in each seat, for all full cards: no replica fits in addition.

    Args:
        seats: the seats.
        limits: capacity of a card for each of the two quantities that seats use.
        most: number of patterns above which None is returned.
    """
    found: list[tuple[int, ...]] = []
    for visited, (counts, left) in enumerate(_filled(seats, 0, limits)):
        if not any(_fits(seat, left) for seat in seats):
            found.append(counts)
        if len(found) > most or visited > MAX_VISITED:
            return None
    return found


def _filled(
    seats: Sequence[Seat], at: int, left: tuple[float, float]
) -> Iterator[tuple[tuple[int, ...], tuple[float, float]]]:
    """Yield replica counts of the seats from position `at`, the last filled up, and the capacity left."""
    if at == len(seats):
        yield (), left
        return
    count = 0
    while True:
        more = _fits(seats[at], left)
        if not more or at < len(seats) - 1:
            for rest, remaining in _filled(seats, at + 1, left):
                yield (count, *rest), remaining
        if not more:
            return
        left = (left[0] - seats[at].uses[0], left[1] - seats[at].uses[1])
        count += 1


def _fits(seat: Seat, left: tuple[float, float]) -> bool:
    return all(use <= rest + ROUNDING for use, rest in zip(seat.uses, left, strict=True))
