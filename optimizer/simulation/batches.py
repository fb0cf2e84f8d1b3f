"""Parameters of a dynamic-batching server, as plain numbers for compiled code."""

from typing import Literal, NamedTuple

from optimizer.simulation.limits import UNLIMITED

TriggerName = Literal["oldest", "collect", "gap", "interval", "clock"]
TRIGGERS: tuple[TriggerName, ...] = ("oldest", "collect", "gap", "interval", "clock")
"""Rules for the start of a batch that is not full, by their names in documents."""
QueueCounts = Literal["waiting", "system"]
"""Whether a queue limit counts only waiting requests, or also those in service."""
OLDEST, COLLECT, GAP, INTERVAL, CLOCK = range(len(TRIGGERS))


class BatchServer(NamedTuple):
    """A server that serves up to `size` requests together, in base + slope·n ms.

    If fewer than `size` requests wait, a free server starts when a window of W ends. The window starts:
    `oldest` with the arrival of the oldest request; `collect` when the server is free and a request waits;
    `gap` with the latest arrival; `interval` when the server becomes free, repeatedly while no request waits.
    `clock` only starts batches at multiples of W, one per tick.
    """

    size: int
    """B: maximum batch size."""
    window_ms: float
    """W: batching window [ms]."""
    base_ms: float
    slope_ms: float
    """Time added by each request in the batch [ms]."""
    queue_limit: int = UNLIMITED
    """K: maximum requests waiting, or in the system with `counts_system`; further requests are rejected."""
    counts_system: bool = False
    """Whether the limit K includes requests in service."""
    trigger: int = OLDEST
    """Rule for the start of a batch of fewer than B requests: an index into `TRIGGERS`."""

    @property
    def spacing_ms(self) -> float:
        """Shortest time between the starts of two full batches [ms]."""
        return self.window_ms if self.trigger == CLOCK else self.base_ms + self.slope_ms * self.size

    @property
    def full_rate(self) -> float:
        """Saturation throughput [requests/ms]."""
        return self.size / self.spacing_ms
