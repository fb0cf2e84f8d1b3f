"""The interface of a limit: available amounts, use per replica, and its texts.

A limit is an upper bound on a sum over replicas, or on the largest of several such sums. Replicas never have
negative use, so serving no server always satisfies a limit. Restrictions of another form are not limits
(docs/design.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document, UnlimitedCards
from optimizer.quantities import counted, quantity


class Stock(NamedTuple):
    """The part of a system from which limits derive their amounts."""

    options: Document
    """Options of the optimizer."""
    unlimited: bool
    """Whether cards are unlimited."""
    cards: Mapping[str, int]
    """Cards by accelerator type, as listed in the system."""
    types: tuple[str, ...]
    """All accelerator types."""
    surging: tuple[str, ...] = ()
    """Servers that start extra replicas during their roll-outs."""
    currency: str | None = None
    """Currency of costs in messages; None: cents."""

    @property
    def limited_cards(self) -> dict[str, float]:
        """The available cards of each type that has a limit."""
        cards = {} if self.unlimited else {name: self.cards.get(name, 0) for name in self.types}
        return {name: float(n) for name, n in cards.items() if not isinstance(n, UnlimitedCards)}


class Replicas(NamedTuple):
    """One replica of each of C candidates; shapes (C,)."""

    accelerator: IntArray
    """Accelerator as an index into the names."""
    accelerator_names: tuple[str, ...]
    type: IntArray
    """Accelerator type as an index into the names."""
    type_names: tuple[str, ...]
    cards: IntArray
    cost: FloatArray
    """Cost of a replica [cents/h]."""
    accelerators: IntArray
    server: IntArray
    """Server as an index into the names."""
    server_names: tuple[str, ...]
    extra: FloatArray
    """Number of extra replicas during a roll-out, per replica of the candidate."""
    largest_power: Callable[[], FloatArray]
    """Function that computes the power at the largest rate [W]."""
    accelerator_documents: Sequence[Document]
    """Accelerators in the order of their names; further indices are not accelerators."""

    def of_accelerators(self, value: Callable[[Any], float]) -> FloatArray:
        """Return a value of each accelerator in a replica, shape (C,); 0 for rentals and other costs."""
        known = np.array([*map(value, self.accelerator_documents), 0.0, 0.0])
        return np.asarray(known[self.accelerator] * self.accelerators)


class PlacedReplicas(NamedTuple):
    """Replicas of one server on one accelerator, cards that servers share, or another cost."""

    accelerator: str
    type: str
    replicas: int
    cards: int
    """Cards of one replica."""
    cost: float
    """Cost of one replica [cents/h]."""
    power_w: float = 0.0
    """Power of one replica at its largest rate [W]; 0 if no limit needs it."""
    server: str = ""
    surge: float = 0.0
    """Fraction of extra replicas that run next to the old ones during a roll-out."""


class Limit(ABC):
    """A limit, without state; the table of limits has one object of each.

    A limit has items, such as the accelerator types, and an upper bound on the use of each.
    """

    name: ClassVar[str]
    """Name in documents and messages."""
    unit: ClassVar[str]
    """Singular noun for an amount of 1: card."""
    whole: ClassVar[bool] = True
    """Whether amounts and uses are integers."""
    step: ClassVar[float | None] = None
    """Amount that explanations add and take away; None: as much as a replica takes, because less changes
    nothing.
    """
    can_be_added: ClassVar[bool] = False
    """Whether a repair can increase the amount."""
    field: ClassVar[str] = ""
    """Python name of the option without which the limit does not apply; empty: it always does."""
    counts_power: ClassVar[bool] = False
    """Whether the limit counts the power of replicas, which takes some time to compute."""
    follows: ClassVar[str] = ""
    """Name of the limit whose amounts apply to this limit's items of the same names; empty if it has its
    own.
    """
    is_sum: ClassVar[bool] = True
    """Whether the total use is the sum of the uses of servers."""

    def applies(self, options: Document) -> bool:
        """Return whether the options state the limit; limits without a field always apply."""
        return not self.field or getattr(options, self.field) is not None

    @abstractmethod
    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the available amount of each limited item, sorted by name."""

    @abstractmethod
    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the use of an item by one replica of each candidate, shape (C,)."""

    def rows(self, replicas: Replicas, item: str) -> Iterator[tuple[str, FloatArray]]:
        """Yield the sums that must not exceed the amount of an item: a label, and the use, shape (C,)."""
        yield "", self.use(replicas, item)

    def total(self, replicas: Replicas, count: IntArray, item: str) -> float:
        """Return the use of an item by placed replicas: the largest of its sums.

        Args:
            replicas: one replica of each placement, C of them.
            count: their numbers, shape (C,).
            item: the item.
        """
        sums = [self.use(replicas, item), *(use for _, use in self.rows(replicas, item))]
        return max(math.fsum((use * count).tolist()) for use in sums)

    def why_none(self, item: str, stock: Stock) -> str | None:  # noqa: ARG002
        """Return a message if an item is unavailable regardless of its amount, else None."""
        return None

    def in_currency(self, currency: str | None) -> "Limit":  # noqa: ARG002  only limits on costs use it
        """Return the limit with messages that state costs in a currency."""
        return self

    def amount_text(self, item: str, amount: float) -> str:
        """Format an amount of an item: ``4 cards of H100``."""
        return f"{self.counted(amount)} of {item}"

    def label(self, item: str) -> str:
        """Return a short name of a limited item, distinct from those of other limits."""
        return f"{self.name} of {item}"

    def number(self, amount: float) -> str:
        """Format an amount as a number: ``1,200``."""
        return f"{int(amount):,}" if self.whole else quantity(amount)

    def counted(self, amount: float) -> str:
        """Format an amount without its item: ``4 cards``."""
        return counted(int(amount) if self.whole else amount, self.unit)
