"""Limit on cards during a roll-out: new replicas start beside the old ones (math.md section 27)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, is_none
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import Limit, PlacedReplicas, Replicas, Stock
from optimizer.quantities import counted

ROLLOUT = "roll-out"
BETWEEN = " for "
ROUNDING = 1e-9
"""Share of a number of replicas that counts as rounding."""


class RolloutOption(Document):
    """The limit's field of the options."""

    rollout: Literal["all", "one"] | None = Field(None, exclude_if=is_none)
    """Whether servers with a `surge` roll out all at once or one at a time. Cards suffice for their extra
    replicas too. Absent: roll-outs need no cards of their own."""


def extra_replicas(surge: float, replicas: int) -> int:
    """Return the replicas that start beside the old ones (eq. 185)."""
    return math.ceil(surge * replicas * (1 - ROUNDING))


class Rollout(Limit):
    """Cards by type with the extra replicas: of all servers, or of one server each."""

    name: ClassVar[str] = ROLLOUT
    unit: ClassVar[str] = "card"
    whole: ClassVar[bool] = False  # the extra replicas are rounded for a server, not for each replica

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the cards of each type, for every server with a surge unless all roll out at once."""
        assert isinstance(stock.options, RolloutOption)
        if stock.unlimited or stock.options.rollout is None or not stock.surging:
            return {}
        cards = {kind: float(stock.cards.get(kind, 0)) for kind in stock.types}
        if stock.options.rollout == "all":
            return cards
        return {_item(kind, name): cards[kind] for kind in stock.types for name in stock.surging}

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of a replica, with its part of the extra replicas."""
        each = np.zeros(len(replicas.cards))
        for k, kind in enumerate(replicas.type_names):
            if item == kind:
                each += np.where(replicas.kind == k, replicas.cards * (1 + replicas.extra), 0.0)
            elif item.startswith(kind + BETWEEN):
                names = [*replicas.server_names, ""]  # shared cards are no server's
                mine = np.array([item == _item(kind, name) for name in names], np.bool_)
                extra = np.where(mine[replicas.server], replicas.extra, 0.0)
                each += np.where((replicas.kind == k) & mine.any(), replicas.cards * (1 + extra), 0.0)
        return each

    def used(self, placed: Iterable[PlacedReplicas]) -> Mapping[str, float]:
        """Return the cards by type, and those with the extra replicas of one server."""
        return _Used(placed)

    def more(self, item: str, changes: Mapping[tuple[str, str], float]) -> float:
        """Return by how much more cards of its type raise an amount."""
        cards = (
            change
            for (limit, kind), change in changes.items()
            if limit == CARDS and (item == kind or item.startswith(kind + BETWEEN))
        )
        return super().more(item, changes) + sum(cards)

    def amount_text(self, item: str, amount: float) -> str:
        """Write an amount: ``4 cards of H100 while it rolls out``."""
        return f"{self.counted(amount)} of {item} during a roll-out"

    def number(self, amount: float) -> str:
        """Write an amount as a number."""
        return f"{round(amount):,}"

    def counted(self, amount: float) -> str:
        """Write an amount: ``4 cards``."""
        return counted(round(amount), self.unit)


class _Used(dict[str, float]):
    """Cards in a roll-out by item; one server's are those of all without surge, and its extra ones."""

    def __init__(self, placed: Iterable[PlacedReplicas]) -> None:
        plain: Counter[str] = Counter()
        extra: Counter[tuple[str, str]] = Counter()
        for item in placed:
            if item.cards:
                plain[item.type] += item.replicas * item.cards
                extra[item.type, item.server] += extra_replicas(item.surge, item.replicas) * item.cards
        super().__init__({_item(*key): float(plain[key[0]] + more) for key, more in extra.items() if more})
        self.update(
            {
                kind: float(cards + sum(n for (of, _), n in extra.items() if of == kind))
                for kind, cards in plain.items()
            }
        )
        self._plain = plain

    def __missing__(self, item: str) -> float:
        """Return the use of an item; a server without replicas of the type adds nothing to it."""
        return float(next((n for kind, n in self._plain.items() if item.startswith(kind + BETWEEN)), 0))

    def get(self, item: str, _default: float = 0.0) -> float:  # type: ignore[override]
        """Return the use of an item."""
        return self[item]


def _item(kind: str, server: str) -> str:
    """Return the name of the cards of a type while a server rolls out."""
    return f"{kind}{BETWEEN}{server}"
