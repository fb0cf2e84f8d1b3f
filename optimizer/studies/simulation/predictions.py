"""Predictions of the queue models for the pools of a plan, which are compared with simulated values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.class_rows import ClassRows
from optimizer.candidates.measuring import parts, performances
from optimizer.candidates.pairs import arrays_of
from optimizer.kinds.fields import Load
from optimizer.kinds.replicas import Percentiles, percentiles_of
from optimizer.plan import Pool
from optimizer.plan.rows import pool_pairs
from optimizer.queueing.measures import LATENCIES, TargetMeasure
from optimizer.queueing.performance import Performance
from optimizer.queueing.targets import DELAYED
from optimizer.spec.system import System


@dataclass(frozen=True, slots=True)
class Prediction:
    """Latencies that the queue model predicts for a replica at its load [ms]."""

    e2e_ms: float
    """Mean time to the last token [ms]."""
    percentiles: Mapping[str, Percentiles | None]
    """Percentiles of each latency [ms]; None if the queue model computes only means."""
    shapes: Mapping[TargetMeasure, float] = field(default_factory=dict)
    """Mean and percentiles of the latencies of each request shape [ms], by measure."""


def predictions(system: System, pools: Sequence[tuple[str, Pool]]) -> list[Prediction]:
    """Return the predictions for pools with load; each pool is given with the name of its server."""
    arrays = arrays_of(system)
    by_row: dict[int, Prediction] = {}
    for rows, some, performance in performances(arrays, *pool_pairs(arrays, pools)):
        delay_ms = arrays.servers.delay_ms[some.server, some.accelerator]
        by_row |= zip(rows.tolist(), _predictions(performance, delay_ms), strict=True)
        for i, row in enumerate(rows.tolist()):
            load = system.servers[pools[row][0]].current.load
            by_row[row] = replace(by_row[row], shapes=_of_shapes(load, performance, i))
    return [by_row[row] for row in range(len(pools))]


def _of_shapes(load: Load, performance: Performance, row: int) -> dict[TargetMeasure, float]:
    """Return mean and percentiles of the latencies of each request shape of a load [ms], by measure."""
    measures = [
        TargetMeasure(metric, percentile, shape=shape.name)
        for shape in load.shapes
        for metric in LATENCIES
        for percentile in (None, *(float(name[1:-3]) for name in Percentiles.model_fields))
    ]
    return {measure: float(performance.figure(measure)[row]) for measure in measures}


def member_predictions(
    system: System, arrays: SystemArrays, name: str, pool: Pool
) -> Iterator[tuple[str, Prediction]]:
    """Yield the predictions for the members of a shared queue, at the load of its pool.

    Args:
        system: the planned system.
        arrays: the system arrays, with the load that the plan serves.
        name: name of the queue.
        pool: pool of the queue.
    """
    pairs, rate_rps = pool_pairs(arrays, [(name, pool)])
    for _, some in parts(arrays, pairs):
        classes = ClassRows.of(arrays, some)
        performance = classes.analyze(rate_rps)
        names = [arrays.servers.members.names[member] for member in classes.member.tolist()]
        for row, prediction in enumerate(_predictions(performance, classes.delay_ms)):
            own = _of_shapes(system.streams[names[row]].load, performance, row)
            yield names[row], replace(prediction, shapes=own)


def _predictions(performance: Performance, delay_ms: FloatArray) -> Iterator[Prediction]:
    """Yield the prediction for each row of a performance, including the network latency of its clients."""
    e2e_ms = performance.figure(TargetMeasure("e2e")) + delay_ms
    percentiles = {metric: percentiles_of(performance, metric) for metric in LATENCIES}
    for row, offset_ms in enumerate(delay_ms.tolist()):
        own: dict[str, Percentiles | None] = {
            metric: _later(times_ms[row], offset_ms * (metric in DELAYED))
            for metric, times_ms in percentiles.items()
        }
        yield Prediction(e2e_ms=float(e2e_ms[row]), percentiles=own)


def _later(percentiles: Percentiles | None, offset_ms: float) -> Percentiles | None:
    """Return percentiles increased by an offset [ms]; None if there are none."""
    if percentiles is None or not offset_ms:
        return percentiles
    return Percentiles(**{name: value + offset_ms for name, value in percentiles})
