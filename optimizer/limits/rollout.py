"""Limits on cards during roll-outs: new replicas start beside the old ones (math.md section 27).

Items are accelerator types; their amounts are the cards of the type. If all servers roll out together, the
extra replicas of all count. If they do so one at a time, those of the server that needs most count: the limit
is then one row for each server with extra replicas.
"""

import math
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, is_none
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import Limit, PlacedReplicas, Replicas, Stock, Uses
from optimizer.quantities import counted

ROLLOUT = "roll-out"
ROUNDING = 1e-9
"""Share of a number of replicas that counts as rounding."""

ExtraCards = Mapping[str, Mapping[str, int]]
"""Cards of the extra replicas, by type and server."""


class RolloutOption(Document):
    """The limits' field of the options."""

    rollout: Literal["all", "one"] | None = Field(None, exclude_if=is_none)
    """Whether servers with a `surge` roll out all at once or one at a time. Cards suffice for their extra
    replicas too. Absent: roll-outs need no cards of their own."""


def extra_replicas(surge: float, replicas: int) -> int:
    """Return the replicas that start beside the old ones (eq. 185)."""
    return math.ceil(surge * replicas * (1 - ROUNDING))


class Rollout(Limit):
    """Cards by type with extra replicas (eq. 186)."""

    name: ClassVar[str] = ROLLOUT
    unit: ClassVar[str] = "card"
    whole: ClassVar[bool] = False  # extra replicas are rounded for a server, not for each replica
    follows: ClassVar[str] = CARDS
    mode: ClassVar[str]
    """Value of the option that selects it."""

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the cards of each type, if a server has a surge."""
        assert isinstance(stock.options, RolloutOption)
        if stock.unlimited or stock.options.rollout != self.mode or not stock.surging:
            return {}
        return {kind: float(stock.cards.get(kind, 0)) for kind in stock.types}

    def used(self, placed: Iterable[PlacedReplicas]) -> Uses:
        """Return the cards of each type during a roll-out."""
        placed = list(placed)
        extra, cards = _extra_cards(placed), _cards(placed)
        return {kind: float(n + self._together(extra.get(kind, {}))) for kind, n in cards.items() if kind}

    @staticmethod
    @abstractmethod
    def _together(extra: Mapping[str, int]) -> int:
        """Return the extra cards of a type that are in use at a time, from those of each server."""

    def amount_text(self, item: str, amount: float) -> str:
        """Write an amount: ``4 cards of H100 during a roll-out``."""
        return f"{self.counted(amount)} of {item} during a roll-out"

    def number(self, amount: float) -> str:
        """Write an amount as a number."""
        return f"{round(amount):,}"

    def counted(self, amount: float) -> str:
        """Write an amount: ``4 cards``."""
        return counted(round(amount), self.unit)


class RolloutOfAll(Rollout):
    """All servers roll out at the same time."""

    mode: ClassVar[str] = "all"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of a replica, with its part of the extra replicas."""
        here = replicas.kind == replicas.type_names.index(item)
        return np.where(here, replicas.cards * (1 + replicas.extra), 0.0)

    @staticmethod
    def _together(extra: Mapping[str, int]) -> int:
        return sum(extra.values())


class RolloutOfOne(Rollout):
    """Servers roll out one after the other, in any order."""

    mode: ClassVar[str] = "one"
    is_sum: ClassVar[bool] = False

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of a replica without extra ones."""
        return np.where(replicas.kind == replicas.type_names.index(item), replicas.cards, 0.0)

    def rows(self, replicas: Replicas, item: str) -> Iterator[tuple[str, FloatArray]]:
        """Yield the cards of all servers with the extra ones of one, for each that has some."""
        each = self.use(replicas, item)
        extra = each * replicas.extra
        for server in np.unique(replicas.server[extra > 0]).tolist():
            yield replicas.server_names[server], each + np.where(replicas.server == server, extra, 0.0)

    def adding_to(self, others: Iterable[PlacedReplicas]) -> Callable[[Iterable[PlacedReplicas]], Uses]:
        """Return a function of the cards that a server adds: extra ones count beyond the most so far."""
        largest = {kind: max(extra.values()) for kind, extra in _extra_cards(others).items()}

        def added(placed: Iterable[PlacedReplicas]) -> Uses:
            placed = list(placed)
            extra = _extra_cards(placed)
            return {
                kind: float(n + max(self._together(extra.get(kind, {})) - largest.get(kind, 0), 0))
                for kind, n in _cards(placed).items()
            }

        return added

    @staticmethod
    def _together(extra: Mapping[str, int]) -> int:
        return max(extra.values(), default=0)


def _cards(placed: Iterable[PlacedReplicas]) -> Counter[str]:
    """Return the cards by type, without extra replicas."""
    cards = Counter[str]()
    for item in placed:
        cards[item.type] += item.replicas * item.cards
    return cards


def _extra_cards(placed: Iterable[PlacedReplicas]) -> ExtraCards:
    """Return the cards of the extra replicas of each server with a surge."""
    extra = defaultdict[str, Counter[str]](Counter)
    for item in placed:
        if item.surge and item.cards:
            extra[item.type][item.server] += extra_replicas(item.surge, item.replicas) * item.cards
    return extra
