"""Performance of replicas at given arrival rates, for arrays of server–accelerator pairs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.class_rows import ClassRows, ServerRows, rows_of
from optimizer.candidates.pairs import Pairs, chunks, replicas_of
from optimizer.queueing.continuous.latencies import Latencies
from optimizer.queueing.continuous.model import ContinuousPerformance
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.queueing.shapes import shape_number
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import DELAYED

CHUNK_STEP_TRIES = 16
"""Maximum number of replicas added if the first count misses a target because of a chunk-count jump."""


@dataclass(frozen=True, slots=True)
class ShapedReplica:
    """A replica at its arrival rate, with the rows of its load."""

    latencies: Latencies
    """Its latency distributions; one row."""
    load: float
    """Arrival rate divided by the maximum stable rate."""
    varies: bool
    """Whether its requests have several different rows."""
    is_long: bool
    """Whether some of its prompts can exceed the token budget of an iteration."""
    largest_share: float
    """Fraction of the KV cache that a request of the longest shape holds at its end; 0 if it is unlimited."""

    def of(self, measure: TargetMeasure, delay_ms: float) -> float:
        """Return a mean or percentile of a latency [ms], over the requests of the measure's shape.

        Args:
            measure: the metric, its statistic and its shape.
            delay_ms: network latency that clients add to TTFT and end-to-end latency [ms].
        """
        latencies = self.latencies.of_shape(shape_number(measure.shape)) if measure.shape else self.latencies
        return latencies.statistic_ms(measure) + (delay_ms if measure.metric in DELAYED else 0.0)

    @classmethod
    def of_row(
        cls, queues: QueueModel, rate_rps: FloatArray, performance: Performance, row: int
    ) -> Self | None:
        """Describe one row of a queue model and its performance; None if it does not know shapes."""
        mix = queues.mix_of(row)
        if mix is None or not isinstance(performance, ContinuousPerformance):
            return None
        load = float(rate_rps[row] / queues.stable_rate_rps[row])
        return cls(performance.latencies.take(np.array([row])), load, *mix)


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """Performance of one replica of each of R server–accelerator pairs at its arrival rate."""

    performance: Performance
    """Long-run means, shapes (R,)."""
    targets: FloatArray
    """Value of each of K target measures, shape (K, R); 0 for shared queues, because targets belong to
    members.
    """
    own: Mapping[str, FloatArray]
    """Metrics that only some kinds of servers have, by pool field, shapes (R,); NaN for other kinds."""
    shaped: Mapping[int, ShapedReplica]
    """Replicas of the queue model `continuous` with the rows of their loads, if any load has shapes."""


CLIENT_TIMES = frozenset({"ttft_ms", "response_ms"})
"""Fields of `Performance` to which clients add the network latency."""


def measure_pairs(arrays: SystemArrays, pairs: Pairs, rate_rps: FloatArray) -> ReplicaMetrics:
    """Return the performance of one replica of each of R pairs at its arrival rate > 0 [requests/s]."""
    metrics = [np.zeros(len(rate_rps)) for _ in fields(Performance)]
    measured = np.zeros((len(arrays.servers.targets.measures), len(rate_rps)))
    shaped: dict[int, ShapedReplica] = {}
    own: defaultdict[str, FloatArray] = defaultdict(lambda: np.full(len(rate_rps), np.nan))

    for rows, some in parts(arrays, pairs):
        server_rows = rows_of(arrays, some)
        of_rows = server_rows.analyze(rate_rps[rows])
        if not arrays.servers.is_queue[some.server[0]]:
            # Clients see the latency of the replica plus that of the network.
            measured[:, rows] = server_rows.targets.figures(of_rows) + server_rows.delays
        for i in range(len(rows)) if arrays.servers.shapes is not None else ():
            one = ShapedReplica.of_row(server_rows.queues, rate_rps[rows], of_rows, i)
            shaped |= {} if one is None else {int(rows[i]): one}
        performance = server_rows.mean(of_rows)
        for name, figures in performance.own.items():
            own[name][rows] = figures
        for array, field in zip(metrics, fields(Performance), strict=True):
            array[rows] = getattr(performance, field.name)
            if field.name in CLIENT_TIMES:
                array[rows] += arrays.servers.delay_ms[some.server, some.accelerator]
    return ReplicaMetrics(Performance(*metrics), measured, own, shaped)


@dataclass(frozen=True, slots=True)
class MemberMetrics:
    """Performance of one member of a shared queue, at the arrival rate of one replica of the queue."""

    row: int
    member: int
    """Index of the member in `MemberArrays`."""
    means: Mapping[str, float]
    """Long-run means, by field of `Performance`."""
    targets: FloatArray
    """Value of each of K target measures, shape (K,)."""
    limits: FloatArray
    """Limit on each target measure, shape (K,)."""
    delay_ms: float
    """Network latency that clients add [ms]."""
    shaped: ShapedReplica | None
    """The replica with the rows of the member's load; None if no load has shapes."""


MEMBER_MEANS = ("itl_ms", "ttft_ms", "wait_ms")


def measure_members(arrays: SystemArrays, pairs: Pairs, rate_rps: FloatArray) -> Iterator[MemberMetrics]:
    """Yield the performance of each loaded member of R pairs of a shared queue and an accelerator."""
    for rows, some in parts(arrays, pairs):
        classes = ClassRows.of(arrays, some)
        performance = classes.analyze(rate_rps[rows])
        # Quantiles of the wait follow from the waiting-time distribution of the class, not from its mean.
        late = performance.wait_quantile(0.95)
        figures, limits = (
            classes.targets.figures(performance) + classes.delays,
            classes.targets.limits + classes.delays,
        )
        for q, (pair, member) in enumerate(zip(classes.pair.tolist(), classes.member.tolist(), strict=True)):
            means = {name: float(getattr(performance, name)[q]) for name in MEMBER_MEANS}
            means["ttft_ms"] += float(classes.delay_ms[q])
            means["wait_p95_ms"] = float(late[q])
            shaped, queues = None, classes.queues.queues
            if arrays.servers.shapes is not None:
                shaped = ShapedReplica.of_row(queues, rate_rps[rows][classes.pair], performance, q)
            own = figures[:, q], limits[:, q], float(classes.delay_ms[q]), shaped
            yield MemberMetrics(int(rows[pair]), member, means, *own)


def largest_rates_of(arrays: SystemArrays, pairs: Pairs) -> FloatArray:
    """Return the maximum rate within its targets of a replica of each of R pairs [requests/s], shape (R,).

    The rate of a shared queue is the total of its classes, in their fixed proportions.
    """
    return _rates_of(
        arrays, pairs, lambda server_rows: largest_rate(server_rows.queues, server_rows.targets).max_rate_rps
    )


def stable_rates_of(arrays: SystemArrays, pairs: Pairs) -> FloatArray:
    """Return the maximum stable rate of a replica of each of R pairs [requests/s], shape (R,).

    The rate of a shared queue is the total of its classes, in their fixed proportions.
    """
    return _rates_of(arrays, pairs, lambda server_rows: server_rows.queues.stable_rate_rps)


def _rates_of(arrays: SystemArrays, pairs: Pairs, rate_of: Callable[[ServerRows], FloatArray]) -> FloatArray:
    """Return a rate of a replica of each pair [requests/s]: the smallest that `rate_of` gives its rows."""
    rates = np.zeros(len(pairs.server))
    for rows, some in parts(arrays, pairs):
        server_rows = rows_of(arrays, some)
        # The rate of a queue is bounded by its most demanding class.
        result = server_rows.of_pairs(np.minimum, rate_of(server_rows))
        rates[rows] = result * arrays.rate_factor[some.server, some.accelerator]
    return rates


def targets_hold(arrays: SystemArrays, pairs: Pairs, rate_rps: FloatArray) -> BoolArray:
    """Return a mask of pairs of which one replica meets all targets at its arrival rate [requests/s]."""
    holds = np.zeros(len(rate_rps), np.bool_)
    for rows, some in parts(arrays, pairs):
        server_rows = rows_of(arrays, some)
        holds[rows] = server_rows.met(server_rows.analyze(rate_rps[rows]))
    return holds


def performances(
    arrays: SystemArrays, pairs: Pairs, rate_rps: FloatArray
) -> Iterator[tuple[IntArray, Pairs, Performance]]:
    """Yield the performance of one replica of each pair at its arrival rate [requests/s].

    Each item has the positions of pairs with the same queue model, these pairs, and their performance.
    """
    for rows, some in parts(arrays, pairs):
        yield rows, some, replicas_of(arrays, some).analyze(rate_rps[rows])


def parts(arrays: SystemArrays, pairs: Pairs) -> Iterator[tuple[IntArray, Pairs]]:
    """Split pairs into groups that are analysed together; yield the positions and the pairs of each group."""
    queued = arrays.servers.is_queue[pairs.server]
    for alike in (np.flatnonzero(~queued), np.flatnonzero(queued)):
        for rows in chunks(arrays, pairs, alike):
            yield rows, pairs.take(rows)
