"""Performance of replicas at given rates, for rows of servers and accelerators."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.pairs import Pairs, chunks, queue_capacity, replicas_of, targets_of
from optimizer.parallel import in_threads
from optimizer.queueing.performance import Performance

COUNT_TOLERANCE = 1e-9
"""Relative excess of load over replicas × rate that does not yet require another replica."""
CHUNK_STEP_TRIES = 16
"""Replicas added at most where a step of the prefill chunks makes the first count miss a target."""


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """Performance of one replica of each of R pairs at a rate."""

    performance: Performance
    """Long-run means."""
    targets: FloatArray
    """Values of the measures of its targets, shape (K, R)."""
    own: Mapping[str, FloatArray]
    """Figures that only some kinds have, by fields of pools; NaN for others, shapes (R,)."""


CLIENT_TIMES = frozenset({"ttft_ms", "response_ms"})
"""Times of a performance that include the network."""


def analyze_pairs(
    arrays: SystemArrays, server: IntArray, accelerator: IntArray, max_batch: IntArray, rate_rps: FloatArray
) -> Performance:
    """Return the long-run means of one replica per row at a given arrival rate > 0; all shapes (R,)."""
    return measure_pairs(arrays, server, accelerator, max_batch, rate_rps).performance


def measure_pairs(
    arrays: SystemArrays, server: IntArray, accelerator: IntArray, max_batch: IntArray, rate_rps: FloatArray
) -> ReplicaMetrics:
    """Return the long-run means of one replica per row, and what its targets measure."""
    found = [np.zeros(len(server)) for _ in fields(Performance)]
    measured = np.zeros((len(arrays.servers.targets.measures), len(server)))
    own: defaultdict[str, FloatArray] = defaultdict(lambda: np.full(len(server), np.nan))

    def fill(part: tuple[IntArray, Pairs]) -> None:
        rows, some = part
        performance = replicas_of(arrays, some).analyze(rate_rps[rows])
        targets, offset_ms = (
            targets_of(arrays, some),
            arrays.servers.network_ms[some.server, some.accelerator],
        )
        measured[:, rows] = targets.figures(performance) + targets.delays(offset_ms)
        for name, figures in performance.own.items():
            own[name][rows] = figures
        for array, field in zip(found, fields(Performance), strict=True):
            array[rows] = getattr(performance, field.name)
            if field.name in CLIENT_TIMES:
                array[rows] += offset_ms

    in_threads(fill, [*parts(arrays, server, accelerator, max_batch)])
    return ReplicaMetrics(Performance(*found), measured, own)


def performances(
    arrays: SystemArrays, server: IntArray, accelerator: IntArray, max_batch: IntArray, rate_rps: FloatArray
) -> Iterator[tuple[IntArray, Pairs, Performance]]:
    """Yield rows, pairs and metrics of one replica per row at its rate, by queue model."""
    for rows, some in parts(arrays, server, accelerator, max_batch):
        yield rows, some, replicas_of(arrays, some).analyze(rate_rps[rows])


def parts(
    arrays: SystemArrays, server: IntArray, accelerator: IntArray, max_batch: IntArray
) -> Iterator[tuple[IntArray, Pairs]]:
    """Yield rows that are analysed together, queue model by queue model, and their pairs."""
    profile, capacity = arrays.profile_of[server, accelerator], queue_capacity(arrays, server, max_batch)
    pairs = Pairs(server, accelerator, profile, max_batch, capacity, max_batch, np.full(len(server), np.nan))
    for rows in chunks(arrays, pairs, np.arange(len(server))):
        yield rows, pairs.take(rows)
