"""What a batch server is, as plain numbers that compiled code takes as they are."""

from typing import NamedTuple

OLDEST, COLLECT, GAP, INTERVAL, CLOCK = range(5)
NO_LIMIT = 1 << 60


class BatchServer(NamedTuple):
    """A server that answers up to `size` requests together, in base + slope·n ms."""

    size: int
    """B: requests in a batch at most."""
    window_ms: float
    """W."""
    base_ms: float
    slope_ms: float
    room: int
    """K: requests that may wait, or be in the system; `NO_LIMIT`: any number."""
    counts_system: bool
    """Whether the room holds those in service as well."""
    trigger: int
    """What starts a batch of fewer than B."""
