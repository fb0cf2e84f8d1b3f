"""Limits on cards during roll-outs, when new replicas start before the old ones stop (math.md section 27).

Items are accelerator types; the amount is the number of cards of the type. If all servers roll out together,
the extra replicas of all servers count. If they roll out one at a time, only the largest number of extra
cards counts, so the limit has one row for each server with extra replicas.
"""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document, is_none
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import Limit, Replicas, Stock
from optimizer.quantities import counted
from optimizer.tolerances import ROUNDING

ROLLOUT = "roll-out"


class RolloutOption(Document):
    """Optimizer option for the roll-out limits."""

    rollout: Literal["all", "one"] | None = Field(None, exclude_if=is_none)
    """Whether servers with a `surge` roll out all at once (`all`) or one at a time (`one`); the plan keeps
    cards free for their extra replicas. Absent: no cards are kept free for roll-outs.
    """


def extra_replicas(surge: float, replicas: int) -> int:
    """Return the number of replicas that start in addition to the old ones (eq. 185)."""
    return math.ceil(surge * replicas * (1 - ROUNDING))


class Rollout(Limit):
    """Limit on the cards of each type during roll-outs, including extra replicas (eq. 186)."""

    name: ClassVar[str] = ROLLOUT
    unit: ClassVar[str] = "card"
    whole: ClassVar[bool] = False  # extra replicas are rounded per server, not per replica
    follows: ClassVar[str] = CARDS
    field: ClassVar[str] = "rollout"
    mode: ClassVar[str]
    """Value of the option `rollout` that selects this limit."""

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the number of cards of each type; empty if no server has a surge."""
        assert isinstance(stock.options, RolloutOption)
        if stock.options.rollout != self.mode or not stock.surging:
            return {}
        return stock.limited_cards

    def total(self, replicas: Replicas, count: IntArray, item: str) -> float:
        """Return the number of cards of the item's type that placed replicas use during a roll-out."""
        return float(round(super().total(replicas, count, item)))

    def amount_text(self, item: str, amount: float) -> str:
        """Format an amount for messages: ``4 cards of H100 during a roll-out``."""
        return f"{self.counted(amount)} of {item} during a roll-out"

    def label(self, item: str) -> str:
        """Return a short name of an item: ``H100 during a roll-out``."""
        return f"{item} during a roll-out"

    def number(self, amount: float) -> str:
        """Format an amount as a number."""
        return f"{round(amount):,}"

    def counted(self, amount: float) -> str:
        """Format an amount with its unit: ``4 cards``."""
        return counted(round(amount), self.unit)


class RolloutOfAll(Rollout):
    """Roll-out limit if all servers roll out at the same time."""

    mode: ClassVar[str] = "all"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of one replica of each candidate, with its share of the extra replicas."""
        here = replicas.type == replicas.type_names.index(item)
        return np.where(here, replicas.cards * (1 + replicas.extra), 0.0)


class RolloutOfOne(Rollout):
    """Roll-out limit if servers roll out one after the other, in any order."""

    mode: ClassVar[str] = "one"
    is_sum: ClassVar[bool] = False

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the number of cards of one replica of each candidate, without extra replicas."""
        return np.where(replicas.type == replicas.type_names.index(item), replicas.cards, 0.0)

    def rows(self, replicas: Replicas, item: str) -> Iterator[tuple[str, FloatArray]]:
        """Yield for each server with extra replicas: the cards of all servers, plus its extra cards."""
        each = self.use(replicas, item)
        extra = each * replicas.extra
        for server in np.unique(replicas.server[extra > 0]).tolist():
            yield replicas.server_names[server], each + np.where(replicas.server == server, extra, 0.0)
