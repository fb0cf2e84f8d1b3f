"""Sizes pairs with load: maximum rate, number of replicas, and performance at the load of a replica.

Servers and shared queues are sized by the same code: a pair of a server has one row in the queue model, a
pair of a shared queue one for each class. The classes of a queue have fixed shares of its rate, so its
maximum rate is the smallest of those of its classes (docs/math.md, eq. 176 and 177).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.class_rows import ServerRows, rows_of
from optimizer.candidates.measuring import CHUNK_STEP_TRIES
from optimizer.candidates.memo import SizingMemo
from optimizer.candidates.pairs import Pairs, law_of
from optimizer.candidates.rows import MEANS, candidate_rows, no_rows
from optimizer.candidates.table import CandidateTable, RejectionReason, Verdicts
from optimizer.documents import MAX_COUNT
from optimizer.errors import SpecError
from optimizer.queueing.performance import Performance
from optimizer.queueing.sizing import SizedRows
from optimizer.queueing.targets import target_ratio
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE


def loaded_candidates(
    arrays: SystemArrays,
    pairs: Pairs,
    verdicts: Verdicts,
    memo: SizingMemo | None,
    is_over: Callable[[], bool] | None = None,
) -> CandidateTable:
    """Size pairs; return candidates with the maximum rate, the required replicas, and latencies at the load.

    Args:
        pairs: pairs with load and the same latency and queue model; all or none are shared queues.
        verdicts: receives the rejected pairs with their reasons.
        memo: cache of sizings.
        is_over: function that returns whether the time limit has passed; asked if the pairs are simulated.

    Raises:
        SpecError: the time limit has passed.
    """
    pairs, factor = _usable_pairs(arrays, pairs, verdicts)
    if not len(pairs.server):
        return no_rows(arrays, pairs)
    rows = rows_of(arrays, pairs)
    if is_over is not None and rows.queues.is_simulated and is_over():
        raise SpecError(
            "optimizer.timeLimit: it ends before all batch servers without exact results are sized (bursty "
            "arrivals, stages, jobs or the trigger gap); raise it (--time-limit)"
        )
    return _candidates_of(arrays, pairs, factor, rows, verdicts, memo)


def _usable_pairs(arrays: SystemArrays, pairs: Pairs, verdicts: Verdicts) -> tuple[Pairs, FloatArray]:
    """Reject pairs without work or a usable rate; return the others and the usable share of each rate."""
    works = law_of(arrays, pairs).has_work()
    factor = arrays.rate_factor[pairs.server, pairs.accelerator]
    at = pairs.server, pairs.accelerator
    verdicts.reject(*at, RejectionReason.no_work, where=~works)
    verdicts.reject(*at, RejectionReason.simulation_missed, where=works & (factor == 0))
    # A factor of 0 comes from a simulation that missed the targets at every rate.
    usable = works & (factor != 0)
    pairs, factor = pairs.take(usable), factor[usable]
    return replace(pairs, best_rate_rps=pairs.best_rate_rps * factor), factor


def _candidates_of(
    arrays: SystemArrays,
    pairs: Pairs,
    factor: FloatArray,
    rows: ServerRows,
    verdicts: Verdicts,
    memo: SizingMemo | None,
) -> CandidateTable:
    """Return the candidates of R ≥ 1 pairs; `factor` is the usable share of each maximum rate."""
    servers, of = arrays.servers, SizedRows.of if memo is None else memo.rows
    sized = of(rows.queues, rows.targets)
    # A queue is as good as its most demanding class: its largest rate is the smallest over its rows, and its
    # lowest rate the largest.
    largest = rows.of_pairs(np.minimum, sized.sizing.max_rate_rps) * factor
    lowest = rows.of_pairs(np.maximum, sized.sizing.lowest_rate_rps)
    attainable, load = ~np.isnan(largest), servers.load_rps[pairs.server]
    # y = ⌈Λ / r⌉, with rounding in favour of the smaller number (eq. 28).
    needed = np.ceil(load / np.where(attainable, largest, np.inf) * (1 - ROUNDING))
    needed = np.maximum(np.maximum(needed, servers.min_replicas[pairs.server]), 1.0)
    # Batch servers can miss targets below a rate, because requests then wait for a full batch.
    in_window = ~(load / needed < lowest * (1 - ROUNDING))
    reached, holds = _settled(rows, load, needed, attainable & in_window)
    _reject_missed(verdicts, pairs, rows, sized.sizing.least, reached, attainable, ~holds & in_window)
    rate_rpm, lowest_rpm = load / needed * SECONDS_PER_MINUTE, lowest * SECONDS_PER_MINUTE
    at, limit = (pairs.server, pairs.accelerator), servers.max_replicas[pairs.server]
    verdicts.reject(*at, RejectionReason.window, rate_rpm, lowest_rpm, where=attainable & ~in_window)
    verdicts.reject(*at, RejectionReason.replica_limit, needed, limit, where=holds & (needed > limit))
    performance = rows.mean(reached)
    table = candidate_rows(
        arrays,
        pairs,
        np.minimum(needed, 2.0 * MAX_COUNT).astype(np.int64),
        largest,
        {name: getattr(performance, name) for name in MEANS},
        rows.of_pairs(np.logical_and, sized.meets_below),
    )
    return table.take(holds)


def _settled(
    rows: ServerRows, load_rps: FloatArray, needed: FloatArray, attainable: BoolArray
) -> tuple[Performance, BoolArray]:
    """Return the performance of rows at the load per replica, and a mask of the pairs that meet all targets.

    If latencies increase with the rate, the replica counts `needed` meet the targets. If they do not because
    of a chunk-count jump, replicas are added to `needed`, in place, until the targets are met.
    """
    performance = rows.analyze(load_rps / needed)
    holds = attainable & rows.met(performance, attainable)
    # Below a jump of the latency, more replicas can be needed than the largest rate says.
    missed = np.flatnonzero(attainable & ~holds)
    if not len(missed):
        return performance, holds
    for _ in range(CHUNK_STEP_TRIES):
        needed[missed] += 1
        few = rows.take(missed)
        holds[missed] = few.met(few.analyze(load_rps[missed] / needed[missed]))
        missed = missed[~holds[missed]]
        if not len(missed):
            break
    return rows.analyze(load_rps / needed), holds


def _reject_missed(
    verdicts: Verdicts,
    pairs: Pairs,
    rows: ServerRows,
    least: FloatArray,
    performance: Performance,
    attainable: BoolArray,
    chosen: BoolArray,
) -> None:
    """Reject the chosen pairs; the reason names the worst target, at the minimum or the required rate.

    Args:
        verdicts: receives the rejections.
        pairs: R server–accelerator pairs.
        rows: rows of the queue model of these pairs.
        least: values of the measures at the minimum rate, shape (K, rows).
        performance: performance of the rows at the load per replica.
        attainable: mask of pairs that meet their targets at some rate, shape (R,).
        chosen: mask of pairs to reject, shape (R,).
    """
    if not chosen.any():
        return
    # Which target is named: at the minimum rate if none is attainable, else at the rate per replica.
    figures = least
    if (chosen & attainable).any():
        figures = np.where(rows.of_rows(attainable), rows.targets.figures(performance), least)
    ratios = target_ratio(figures, rows.targets.limits)
    measure = ratios.argmax(axis=0)
    row = rows.worst(ratios.max(axis=0), measure)
    at = measure[row], row
    value, limit = figures[at] + rows.delays[at], rows.targets.limits[at] + rows.delays[at]
    for some, reason in (
        (chosen & ~attainable, RejectionReason.slo_unattainable),
        (chosen & attainable, RejectionReason.slo_missed),
    ):
        verdicts.reject(pairs.server, pairs.accelerator, reason, value, limit, where=some)
        verdicts.measure[pairs.server[some], pairs.accelerator[some]] = at[0][some]
