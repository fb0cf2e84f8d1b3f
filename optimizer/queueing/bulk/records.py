"""Records that compiled functions of a batch server pass to each other."""

from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.simulation.batches import BatchServer


class OldestLeft(NamedTuple):
    """Age of the oldest request that a start leaves in the queue."""

    ages: FloatArray
    """The ages considered [ms]."""
    chances: FloatArray
    """Their distribution by the number of requests left; shape (B, ages)."""


class LatencyLimit(NamedTuple):
    """A server, its arrivals, and a limit on the latency."""

    server: BatchServer
    rate: float
    """Arrival rate [1/ms]."""
    limit: float
    """The limit [ms]."""
    at_z: FloatArray
    """P(N ≤ j) up to the latest start of a full batch that completes in time; shape (B + 1,)."""
    at_over: FloatArray
    """Scratch of `fill_beyond`; shape (B + 1,)."""


class GapTable(NamedTuple):
    """P(another request arrives in time and the batch is late), for windows that a gap closes."""

    late: FloatArray
    """By remaining time, in steps, and queue length; shape (cells, B + 1)."""
    step: float
    """Time between two cells [ms]."""


class Waiting(NamedTuple):
    """Mean number of times that each queue length is found."""

    queue: FloatArray
    """By length."""
    low: int
    """Shortest queue that counts."""
    high: int
    """Longest queue that counts."""


class Scratch(NamedTuple):
    """Arrays that functions overwrite."""

    rows: FloatArray
    """Shape (3, B + 1)."""
    chances: FloatArray
    """Probabilities of a few arrivals."""
    before: FloatArray
    """Longer than every queue."""
