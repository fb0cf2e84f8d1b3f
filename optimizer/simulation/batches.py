"""What a batch server is, as plain numbers that compiled code takes as they are."""

from typing import Literal, NamedTuple

from optimizer.simulation.limits import UNLIMITED

TriggerName = Literal["oldest", "collect", "gap", "interval", "clock"]
TRIGGERS: tuple[TriggerName, ...] = ("oldest", "collect", "gap", "interval", "clock")
"""What starts a batch that is not full, by the names that documents give them."""
QueueCounts = Literal["waiting", "system"]
"""Whom a limit of the queue counts."""
OLDEST, COLLECT, GAP, INTERVAL, CLOCK = range(len(TRIGGERS))


class BatchServer(NamedTuple):
    """A server that answers up to `size` requests together, in base + slope·n ms.

    Where fewer than `size` wait, a free server starts when a window of W is over: `oldest` since the oldest
    of them came; `collect` since it was free and somebody was there; `gap` since the last one came;
    `interval` since it became free, and again if nobody is there. `clock` starts at multiples of W alone, one
    batch a tick.
    """

    size: int
    """B: requests in a batch at most."""
    window_ms: float
    """W."""
    base_ms: float
    slope_ms: float
    """More for each request in the batch [ms]."""
    room: int = UNLIMITED
    """K: requests that may wait, or be in the system; who comes beyond is turned away."""
    counts_system: bool = False
    """Whether the room holds those in service as well."""
    trigger: int = OLDEST
    """What starts a batch of fewer than B, an index into `TRIGGERS`."""

    @property
    def spacing_ms(self) -> float:
        """Time between the starts of full batches."""
        return self.window_ms if self.trigger == CLOCK else self.base_ms + self.slope_ms * self.size

    @property
    def full_rate(self) -> float:
        """What full batches answer [requests/ms]."""
        return self.size / self.spacing_ms
