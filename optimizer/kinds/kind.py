"""What every kind of replica declares: its laws, and the mark of its pools in a plan."""

from abc import ABC
from typing import ClassVar

from optimizer.timing import Law


class Kind(ABC):
    """A kind of replica. It has no state; the table of kinds holds one object of each."""

    name: ClassVar[str]
    """As code and messages call it."""
    laws: ClassVar[tuple[type[Law], ...]]
    """Latency models that make a profile one of this kind."""
    mark: ClassVar[str | None] = None
    """Field of a pool that only pools of this kind have; none: the default kind."""
