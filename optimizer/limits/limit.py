"""What a limit declares: how much of what it counts exists, what a replica uses, and in which words.

A limit is an upper bound on a sum over replicas, no replica uses less than nothing, and serving nobody keeps
it. What breaks one of these conditions is no limit (docs/design.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document
from optimizer.quantities import counted, quantity


class Stock(NamedTuple):
    """What a system says of what exists."""

    options: Document
    """Options of the optimizer."""
    unlimited: bool
    """Whether cards are not counted."""
    cards: Mapping[str, int]
    """By accelerator type, as the system lists them."""
    types: tuple[str, ...]
    """All accelerator types."""


class Replicas(NamedTuple):
    """One replica of each of C candidates; shapes (C,)."""

    accelerator: IntArray
    """Index into the names."""
    accelerator_names: tuple[str, ...]
    kind: IntArray
    """Accelerator type: index into the names."""
    type_names: tuple[str, ...]
    cards: IntArray
    cost: FloatArray
    """[cents/h]"""
    accelerators: IntArray
    largest_power: Callable[[], FloatArray]
    """Computes the power at the largest rate [W]."""


class Placed(NamedTuple):
    """Replicas of one server on one accelerator."""

    accelerator: str
    type: str
    replicas: int
    cards: int
    """Of one replica."""
    cost: float
    """Of one replica [cents/h]."""
    power_w: float = 0.0
    """Of one replica at its largest rate [W]; 0 if no limit asks for it."""


class Limit(ABC):
    """A kind of limit. It has no state; the table of limits holds one object of each.

    It counts items, such as the cards of each accelerator type, and bounds the use of each by an amount.
    """

    name: ClassVar[str]
    """As documents and messages call it."""
    unit: ClassVar[str]
    """What one of an item is called: card."""
    whole: ClassVar[bool] = True
    """Whether amounts and uses are whole numbers."""
    step: ClassVar[float] = 1.0
    """What an explanation takes as one more or one fewer."""
    can_be_added: ClassVar[bool] = False
    """Whether a repair may add to the amount."""

    def needs_power(self, options: Document) -> bool:  # noqa: ARG002  few do
        """Return whether it counts the power of replicas, which takes some time to compute."""
        return False

    @abstractmethod
    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return how much there is of each item that is limited, in the order of the names."""

    @abstractmethod
    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return what one replica of each candidate uses of an item; shape (C,)."""

    @abstractmethod
    def used(self, placed: Iterable[Placed]) -> Mapping[str, float]:
        """Add up what replicas use of each item, by plain arithmetic."""

    def why_none(self, item: str, stock: Stock) -> str | None:  # noqa: ARG002
        """Say why there is nothing of an item, where that is no matter of its amount."""
        return None

    def amount_text(self, item: str, amount: float) -> str:
        """Write an amount of an item: ``4 cards of H100``."""
        return f"{self.counted(amount)} of {item}"

    def number(self, amount: float) -> str:
        """Write an amount as a number: ``1,200``."""
        return f"{int(amount):,}" if self.whole else quantity(amount)

    def counted(self, amount: float) -> str:
        """Write an amount without its item: ``4 cards``."""
        return counted(int(amount) if self.whole else amount, self.unit)
