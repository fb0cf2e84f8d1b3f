"""Records that compiled functions of a batch server pass to each other."""

from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.simulation.batches import BatchServer


class OldestLeft(NamedTuple):
    """Age distribution of the oldest request that the start of a batch leaves in the queue."""

    ages: FloatArray
    """Ages that are considered [ms]."""
    chances: FloatArray
    """Probability of each age, by the number of requests left; shape (B, ages)."""


class LatencyLimit(NamedTuple):
    """A batch server, its arrival rate, and a limit on the latency."""

    server: BatchServer
    rate: float
    """Arrival rate [1/ms]."""
    limit: float
    """Limit on the latency [ms]."""
    at_z: FloatArray
    """P(N ≤ j arrivals) until the latest start of a full batch that completes in time; shape (B + 1,)."""
    at_over: FloatArray
    """Scratch array of `fill_late`; shape (B + 1,)."""


class Waiting(NamedTuple):
    """Mean number of times that requests find each queue length."""

    queue: FloatArray
    """Mean number of times that requests find a queue length, by length."""
    low: int
    """Shortest queue length that requests find a non-negligible number of times."""
    high: int
    """Longest queue length that requests find a non-negligible number of times."""


class Scratch(NamedTuple):
    """Scratch arrays that functions overwrite."""

    rows: FloatArray
    """Three scratch rows, shape (3, B + 1)."""
    chances: FloatArray
    """Scratch array for probabilities of a few arrivals."""
    before: FloatArray
    """Scratch array for a queue length distribution; longer than every queue."""
