"""The interface of a limit: available amounts, use per replica, and texts for messages.

A limit is an upper bound on a sum over replicas, or on the largest of several such sums. Uses are not
negative, so a plan without replicas satisfies every limit. Restrictions of a different form are not limits
(docs/design.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document, UnlimitedCards
from optimizer.quantities import counted, quantity


class Stock(NamedTuple):
    """The facts of a system from which limits derive their amounts."""

    options: Document
    """Optimizer options of the system."""
    unlimited: bool
    """Whether the plan ignores the number of cards."""
    cards: Mapping[str, int]
    """Number of cards by accelerator type, as stated in the system."""
    types: tuple[str, ...]
    """Names of all accelerator types."""
    surging: tuple[str, ...] = ()
    """Names of servers that start extra replicas during their roll-outs."""
    currency: str | None = None
    """Currency of costs in messages; None for cents/h."""
    of_features: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    """Available amount of each item of the limits of features, by limit."""

    @property
    def limited_cards(self) -> dict[str, float]:
        """Number of available cards of each type that has a limit."""
        cards = {} if self.unlimited else {name: self.cards.get(name, 0) for name in self.types}
        return {name: float(n) for name, n in cards.items() if not isinstance(n, UnlimitedCards)}


class Replicas(NamedTuple):
    """One replica of each of C candidates, for computing uses of limits; shapes (C,)."""

    accelerator: IntArray
    """Index of the accelerator in `accelerator_names`."""
    accelerator_names: tuple[str, ...]
    type: IntArray
    """Index of the accelerator type in `type_names`."""
    type_names: tuple[str, ...]
    cards: IntArray
    cost: FloatArray
    """Cost of a replica [cents/h]."""
    accelerators: IntArray
    server: IntArray
    """Index of the server in `server_names`."""
    server_names: tuple[str, ...]
    extra: FloatArray
    """Number of extra replicas during a roll-out, divided by the number of replicas."""
    largest_power: Callable[[], FloatArray]
    """Function that computes the power of each replica at its maximum rate [W]."""
    accelerator_documents: Sequence[Document]
    """Documents of the accelerators, in the order of their indices; larger indices are not accelerators."""

    def of_accelerators(self, value: Callable[[Any], float]) -> FloatArray:
        """Return a value of the accelerator of each replica, shape (C,); 0 for rentals and other costs."""
        known = np.array([*map(value, self.accelerator_documents), 0.0, 0.0])
        return np.asarray(known[self.accelerator] * self.accelerators)


class PlacedReplicas(NamedTuple):
    """Placed replicas of one server on one accelerator, a group of shared cards, or another cost."""

    accelerator: str
    type: str
    replicas: int
    cards: int
    """Number of cards of one replica."""
    cost: float
    """Cost of one replica [cents/h]."""
    power_w: float = 0.0
    """Power of one replica at its maximum rate [W]; 0 if no limit needs it."""
    server: str = ""
    surge: float = 0.0
    """Extra replicas during a roll-out, as a fraction of the replicas."""


class Limit(ABC):
    """Base class of limits; the table of limits has one stateless object of each.

    A limit has items, such as the accelerator types, and an upper bound on the use of each.
    """

    name: ClassVar[str]
    """Name of the limit in documents and messages."""
    unit: ClassVar[str]
    """Unit of amounts as a singular noun, such as "card"."""
    whole: ClassVar[bool] = True
    """Whether amounts and uses are integers."""
    step: ClassVar[float | None] = None
    """Amount that explanations add or remove; None selects the use of a replica, because less has no effect.
    """
    has_steps: ClassVar[bool] = True
    """Whether explanations ask what one step more or fewer is worth."""
    can_be_added: ClassVar[bool] = False
    """Whether a repair (of unserved load) can increase the amount."""
    field: ClassVar[str] = ""
    """Python name of the option that activates the limit; empty if it always applies."""
    counts_power: ClassVar[bool] = False
    """Whether the limit needs the power of replicas, which takes some time to compute."""
    follows: ClassVar[str] = ""
    """Name of another limit whose amounts also apply to this one, item by item; empty if this limit has
    separate amounts.
    """
    is_sum: ClassVar[bool] = True
    """Whether the total use is the sum of the uses of all servers."""

    def applies(self, options: Document) -> bool:
        """Return whether the options activate the limit."""
        return not self.field or getattr(options, self.field) is not None

    @abstractmethod
    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the available amount of each limited item, sorted by name."""

    @abstractmethod
    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the amount of an item that one replica of each candidate uses, shape (C,)."""

    def rows(self, replicas: Replicas, item: str) -> Iterator[tuple[str, FloatArray]]:
        """Yield each sum that an item's amount limits: its label, and its use per replica, shape (C,)."""
        yield "", self.use(replicas, item)

    def total(self, replicas: Replicas, count: IntArray, item: str) -> float:
        """Return the amount of an item that placed replicas use: the largest of its sums.

        Args:
            replicas: one replica of each placement, C of them.
            count: number of replicas of each placement, shape (C,).
            item: name of the item.
        """
        sums = [self.use(replicas, item), *(use for _, use in self.rows(replicas, item))]
        return max(math.fsum((use * count).tolist()) for use in sums)

    def why_none(self, item: str, stock: Stock) -> str | None:  # noqa: ARG002
        """Return a message if an item is not available at all, whatever its amount; else None."""
        return None

    def in_currency(self, currency: str | None) -> "Limit":  # noqa: ARG002  only limits on costs use it
        """Return the limit with messages that state costs in the currency."""
        return self

    def amount_text(self, item: str, amount: float) -> str:
        """Format an amount of an item: ``4 cards of H100``."""
        return f"{self.counted(amount)} of {item}"

    def label(self, item: str) -> str:
        """Return a short name of an item that differs from the names of other limits' items."""
        return f"{self.name} of {item}"

    def number(self, amount: float) -> str:
        """Format an amount as a number: ``1,200``."""
        return f"{int(amount):,}" if self.whole else quantity(amount)

    def counted(self, amount: float) -> str:
        """Format an amount without its item: ``4 cards``."""
        return counted(int(amount) if self.whole else amount, self.unit)


class LimitOfTotal(Limit):
    """Base class of limits on one total, whose amount is the value of an option."""

    whole: ClassVar[bool] = False
    item: ClassVar[str]
    """Name of the only item."""
    total_name: ClassVar[str]
    """Name of the total in messages."""

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the amount of the only item; empty if the option is not set."""
        amount = getattr(stock.options, self.field)
        return {} if amount is None else {self.item: float(amount)}

    def amount_text(self, item: str, amount: float) -> str:  # noqa: ARG002  there is a single item
        """Format an amount for messages: ``700 W of power``."""
        return f"{self.counted(amount)} of {self.total_name}"

    def label(self, item: str) -> str:  # noqa: ARG002  there is a single item
        """Return the name of the limit."""
        return self.name
