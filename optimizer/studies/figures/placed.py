"""One server on one accelerator, found by name and prepared for the queue model.

If no accelerator is named, the plan's choice is used, which requires solving the system.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import CandidateTable, find_candidates
from optimizer.candidates.arrays import ALL_MEMBERS, SystemArrays
from optimizer.candidates.measuring import measure_pairs, performances
from optimizer.candidates.pairs import (
    Pairs,
    largest_rates,
    law_of,
    queue_capacity,
    replicas_of,
    sizable_pairs,
    targets_of,
)
from optimizer.candidates.table import Candidates, RejectionReason, Verdicts
from optimizer.kinds.kind import Kind
from optimizer.kinds.table import kind_of_law
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.quantities import counted, quantity
from optimizer.queueing.bulk.model import BulkQueues
from optimizer.queueing.measures import LATENCIES, LatencyName, TargetMeasure
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.schema.messages import known_name
from optimizer.spec.streams import has_members
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, XAxis, upright
from optimizer.units import SECONDS_PER_MINUTE

LATENCY_TITLES: dict[Literal["itl", "ttft"], str] = {
    "itl": "Inter-token latency",
    "ttft": "Time to first token",
}
"""Titles of the latencies that have separate panels."""


class EmptyFigureError(Exception):
    """A figure has no data; the message states the reason and is shown instead of the figure."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A server on one accelerator, for figures."""

    system: System
    arrays: SystemArrays
    """System arrays that contain only this server."""
    pair: Pairs
    """The pair of server and accelerator as one row; its batch ceiling takes profile, server and memory into
    account.
    """
    server: str
    accelerator: str
    rate_rps: float
    """Load of one replica [requests/s]; 0 if the pair is not a candidate, because the number of replicas is
    unknown.
    """
    remark: str
    """Number of replicas and how it was chosen, or the reason why the pair is not a candidate."""

    @property
    def title(self) -> str:
        """Names of the server and the accelerator, as a title."""
        return f"{self.server} on {self.accelerator}"

    @property
    def type(self) -> str:
        """Accelerator type of the accelerator."""
        return self.arrays.type_names[int(self.arrays.type[self.pair.accelerator[0]])]

    @property
    def max_batch(self) -> int:
        """Batch limit of a replica [requests]."""
        return int(self.pair.max_batch[0])

    def figure(self, title: str, note: str, panels: Iterable[CurvePanel | None]) -> Figure:
        """Return a figure of the server with those panels that are not None."""
        shown = tuple(panel for panel in panels if panel is not None)
        return Figure(title=f"{title}: {self.title}", note=note, panels=shown, types=self.arrays.type_names)

    def require_load(self) -> None:
        """Check that the replica has load.

        Raises:
            EmptyFigureError: the replica has no load.
        """
        if self.rate_rps == 0:
            raise EmptyFigureError(f"{self.title} carries no load; {self.remark}")

    def batch_guide(self) -> ReferenceLine:
        """Return a reference line at the batch limit."""
        return upright(f"batch {self.max_batch:,}", float(self.max_batch))

    def load_guides(self) -> tuple[ReferenceLine, ...]:
        """Return reference lines at the maximum load within all targets, and at the load in the plan."""
        named = (("largest", float(self.largest_rates(self.pair.max_batch)[0])), ("load", self.rate_rps))
        rates = ((name, rate * SECONDS_PER_MINUTE) for name, rate in named if rate > 0)
        return tuple(upright(f"{name} {quantity(rpm)}", rpm) for name, rpm in rates)

    def axis(self, label: str, x: FloatArray) -> XAxis:
        """Return an x axis whose curves have the colour of the accelerator's type."""
        return XAxis(label, x, self.type)

    @property
    def kind(self) -> Kind:
        """Kind of the replicas."""
        return kind_of_law(type(law_of(self.arrays, self.pair)))

    def batch_servers(self) -> BulkQueues:
        """Return the queue model of one replica, which must be a batch server.

        Raises:
            EmptyFigureError: the replica is not a batch server.
        """
        replica = self._replica()
        if not isinstance(replica, BulkQueues):
            raise EmptyFigureError(f"{self.server} is not a batch server; give its model batchParms")
        return replica

    def carries(self, max_batch: IntArray) -> BoolArray:
        """Return the batch limits with which a replica carries its load, or rejects the rest, shape (R,)."""
        return np.asarray(replicas_of(self.arrays, self._rows(max_batch)).longest_rate_rps > self.rate_rps)

    def _replica(self) -> QueueModel:
        capacity = queue_capacity(self.arrays, self.pair.server, self.pair.max_batch)
        return replicas_of(self.arrays, replace(self.pair, max_queue=capacity))

    def rate_range_rps(self) -> tuple[float, float]:
        """Return the lowest rate that sizing considers and the highest stable rate [requests/s] (eq. 22)."""
        replica = self._replica()
        return float(replica.least_rate_rps[0]), float(replica.stable_rate_rps[0])

    def largest_rates(self, max_batch: IntArray) -> FloatArray:
        """Return the maximum rate within the targets at each batch limit [requests/s].

        NaN if there is none.
        """
        pairs = self._rows(max_batch)
        return largest_rates(self.arrays, pairs, targets_of(self.arrays, pairs))

    def analyze(self, max_batch: IntArray, rate_rps: FloatArray) -> Performance:
        """Return the performance of a replica at given batch limits and rates above 0, shapes (R,)."""
        return measure_pairs(self.arrays, self._rows(max_batch), rate_rps).performance

    @property
    def queue_model(self) -> str:
        """Name of the queue model."""
        return self._replica().name

    def supports_measure(self, measure: TargetMeasure) -> bool:
        """Return whether the queue model computes a measure."""
        return type(self._replica()).supports_measure(measure)

    def figures(
        self, max_batch: IntArray, rate_rps: FloatArray, measures: Sequence[TargetMeasure]
    ) -> dict[TargetMeasure, FloatArray]:
        """Return the measures that the queue model supports, at batch limits and rates above 0.

        All shapes are (R,).
        """
        known = [measure for measure in measures if self.supports_measure(measure)]
        figures = {measure: np.zeros(len(rate_rps)) for measure in known}
        for rows, _, performance in performances(self.arrays, self._rows(max_batch), rate_rps):
            for measure, values in figures.items():
                values[rows] = performance.figure(measure)
        return figures

    def _rows(self, max_batch: IntArray) -> Pairs:
        pairs = self.pair.take(np.zeros(len(max_batch), np.int64))
        capacity = queue_capacity(self.arrays, pairs.server, max_batch)
        return replace(pairs, max_batch=max_batch, max_queue=capacity)


def alone_in_system(system: System, server: str) -> System:
    """Return the system with only one server, its accelerators and its current allocation."""
    return replace(system, servers=MappingProxyType({server: system.servers[server]}))


def place(system: System, server: str, accelerator: str | None, backend: str) -> Placed:
    """Return a server on the named accelerator, or on the one that the plan chooses for it.

    Raises:
        SpecError: the accelerator does not exist.
        EmptyFigureError: the server has no load, or cannot run there.
    """
    _check_one_class(system, server)
    if accelerator is not None:
        known_name(accelerator, system.accelerators, "accelerator")
        return _as_candidate(system, server, accelerator)
    return _as_planned(system, server, solve(system, backend=backend))


def _check_one_class(system: System, server: str) -> None:
    """Check that a server is not a shared queue, whose classes have different latencies.

    Raises:
        EmptyFigureError: the server is a shared queue.
    """
    if has_members(system.servers[server]):
        raise EmptyFigureError(
            f"{server} is a shared queue, whose servers have separate latencies; plot 'targets', or see "
            "the table of shared queues"
        )


def candidates_of_only(system: System, server: str) -> Candidates:
    """Return the candidates of a system's only server, which must have load.

    Raises:
        EmptyFigureError: the server has no load.
    """
    candidates = find_candidates(alone_in_system(system, server))
    if candidates.arrays.servers.load_rps[0] == 0:
        raise EmptyFigureError(_idle_text(server))
    return candidates


def _idle_text(server: str) -> str:
    return f"{server} is idle: it has no load, so there is nothing to show"


def has_targets(arrays: SystemArrays) -> bool:
    """Return whether a system's only server has a latency or throughput target."""
    targets = arrays.servers.targets
    return bool(targets.tps[0]) or any(np.isfinite(targets.limit(metric)[0]) for metric in LATENCIES)


def target_of(arrays: SystemArrays, metric: LatencyName) -> tuple[TargetMeasure, float]:
    """Return the measure that the only server's target on a latency limits, and the limit [ms].

    Without such a target, or if a fraction of requests is limited, return the mean and inf.
    """
    limits = arrays.servers.targets.limits_of(0)
    mine = (target for target in limits.items() if target[0].metric == metric)
    return next(mine, (TargetMeasure(metric), np.inf))


def of_statistic(title: str, measure: TargetMeasure) -> str:
    """Return a title, with the percentile if the measure is a percentile."""
    return title if measure.percentile is None else f"{title}, {measure.statistic}"


def joined_candidates(candidates: Candidates) -> CandidateTable:
    """Return all candidates, including those that need more replicas than the server allows.

    Of shared queues, only candidates that serve all members are included.
    """
    table = CandidateTable.joined([candidates.table, candidates.over_limit])
    return table.take(table.members == ALL_MEMBERS)


def rejection(candidates: Candidates, accelerator: str) -> str:
    """Return the reason why the only server cannot run on an accelerator; empty if it can."""
    return next((item.detail for item in candidates.rejections(0) if item.accelerator == accelerator), "")


def _pair(candidates: Candidates, accelerator: str) -> Pairs:
    """Return the pair of the only server and an accelerator, with its batch ceiling.

    Raises:
        EmptyFigureError: the pair has no queue model.
    """
    arrays, fresh = candidates.arrays, Verdicts.none(candidates.arrays.profile_of.shape)
    pairs = sizable_pairs(arrays, fresh, choose_batch=candidates.system.options.batch_sizing == "optimal")
    a = arrays.accelerator_names.index(accelerator)
    rows = np.flatnonzero(pairs.accelerator == a)
    if not len(rows) or candidates.verdicts.reason[0, a] == RejectionReason.no_work:
        name = arrays.server_names[0]
        raise EmptyFigureError(f"{name} cannot run on {accelerator}: {rejection(candidates, accelerator)}")
    return pairs.take(rows)


def _as_candidate(system: System, server: str, accelerator: str) -> Placed:
    candidates = candidates_of_only(system, server)
    pair = _pair(candidates, accelerator)
    table = joined_candidates(candidates)
    row = np.flatnonzero(table.accelerator == pair.accelerator[0])
    why = rejection(candidates, accelerator)
    if not len(row):
        return Placed(system, candidates.arrays, pair, server, accelerator, 0.0, f"not a candidate: {why}")
    count = int(table.num_replicas[row[0]])
    rate = float(candidates.arrays.servers.load_rps[0]) / count
    remark = f"not a candidate: {why}" if why else f"as a candidate, with {counted(count, 'replica')}"
    pair = replace(pair, max_batch=table.max_batch[row])
    return Placed(system, candidates.arrays, pair, server, accelerator, 0.0 if why else rate, remark)


def _as_planned(system: System, server: str, plan: Plan) -> Placed:
    candidates = candidates_of_only(system, server)
    pools = plan.allocations.get(server, ())
    if not pools:
        why = next((item.detail for item in plan.unserved if item.server == server), "nothing is chosen")
        raise EmptyFigureError(f"{server} is not served: {why}; name an accelerator to see the server there")
    pool = max(pools, key=lambda item: item.num_replicas)
    pair = replace(_pair(candidates, pool.accelerator), max_batch=np.array([pool.max_batch]))
    rate = pool.arrival_rate_rpm / pool.num_replicas / SECONDS_PER_MINUTE
    remark = f"as planned, with {counted(pool.num_replicas, 'replica')}"
    if len(pools) > 1:
        remark += f", the largest of its {len(pools)} pools"
    return Placed(system, candidates.arrays, pair, server, pool.accelerator, rate, remark)
