"""Rows (JSON input lines that describe one replica at one rate) and their answers, for all kinds."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, Quantity
from optimizer.errors import AnalysisError
from optimizer.quantities import precise
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import Performance
from optimizer.queueing.targets import TARGET_TOLERANCE, Targets, meets_target
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import Effort
from optimizer.simulation.summary import Distribution, IntervalEstimate, Summary, summarise

_Answer = TypeVar("_Answer", bound=Document)
_PERCENTILE = re.compile(r"p(\d\d)(\d*)(?:_(ttft|itl|e2e))?_ms")
"""Pattern of a percentile's field name: p95_ttft_ms; without a latency it is end-to-end: p999_ms."""
_METRICS = {"mean_ms": "response_ms", "e2e_ms": "response_ms", "rejected": "loss"}
"""Names of metrics whose answer fields have different names, by field."""


class Row(Document):
    """A row: one replica with its arrival rate and targets; results are documents of the replica's kind."""

    rate_rps: Quantity = Field(0.0, alias="RPS")
    """Arrival rate [requests/s]; ignored in sizing."""

    @abstractmethod
    def analyze(self) -> Document:
        """Return the performance at the row's rate, or `UnstableReplica` if its queue would grow forever.

        Raises:
            AnalysisError: the rate or a service time is zero.
            SpecError: the queue model does not support the row's settings.
        """

    @abstractmethod
    def size(self) -> Document:
        """Return the maximum rate that meets the targets, and the performance there.

        Raises:
            AnalysisError: no rate meets the targets.
            SpecError: the queue model does not support the row's settings.
        """

    @abstractmethod
    def simulate(self, effort: Effort) -> Document:
        """Simulate the row; return its performance, or `OverloadedReplica` if it has no steady state.

        Raises:
            AnalysisError: the simulation is too short, or a service time is zero.
            SpecError: the queue model does not support the row's settings.
        """


class UnstableReplica(Document):
    """Result of the analysis of a row whose queue would grow without bound."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Maximum stable rate [requests/s]."""
    message: str
    """Error message."""

    @classmethod
    def at(cls, rate_rps: float, stable_rate_rps: float) -> Self:
        """Create the result for an arrival rate above the maximum stable rate."""
        message = (
            f"no steady state: the rate {precise(rate_rps)} requests/s exceeds the maximum stable rate "
            f"{precise(stable_rate_rps)}"
        )
        return cls(offered_rps=rate_rps, stable_rate_rps=stable_rate_rps, message=message)


class OverloadedReplica(Document):
    """Result of the simulation of a replica whose queue grows without bound."""

    overload: str
    """Reason why there is no steady state."""


def answers(answer_type: type[_Answer], performance: Performance, **own: Sequence[object]) -> list[_Answer]:
    """Return a document for each of R rows, whose fields are filled with metrics of the row by name.

    Args:
        answer_type: type of the documents; its fields have names of metrics, such as `p95_ttft_ms`.
        performance: the performance of R rows.
        own: R values each of further fields, which can also replace metrics.
    """
    columns: dict[str, Sequence[object]] = {
        name: values.tolist()
        for name in answer_type.model_fields
        if name not in own and (values := _column(performance, name)) is not None
    }
    columns |= own
    rows = zip(*columns.values(), strict=True)
    return [answer_type.model_validate(dict(zip(columns, row, strict=True))) for row in rows]


def _column(performance: Performance, name: str) -> FloatArray | None:
    """Return the metric that belongs to a field of an answer, shape (R,); None if there is none."""
    percentile = _PERCENTILE.fullmatch(name)
    if percentile is None:
        name = _METRICS.get(name, name)
        return performance.own.get(name, getattr(performance, name, None))
    whole, part, latency = percentile.groups()
    metric: Any = latency or "e2e"
    return performance.figure(TargetMeasure(metric, float(f"{whole}.{part}")))


def unattainable(targets: Targets, least: FloatArray, advice: str, at: str = "") -> AnalysisError:
    """Return the error for one row (replica) that misses its targets at every rate.

    Args:
        targets: targets of the row.
        least: values of the target measures at the lowest rate, shape (K,).
        advice: advice on how the targets can be met.
        at: text on the conditions of these values, such as the rate.
    """
    by_metric = sorted(
        zip(targets.measures, least, targets.limits[:, 0], strict=True),
        key=lambda item: item[0].metric,
        reverse=True,
    )
    missed = [
        f"the best {measure.label}{at} is {measure.text(best, 4)}, target {measure.text(limit)}"
        for measure, best, limit in by_metric
        if not meets_target(best, limit, TARGET_TOLERANCE)
    ]
    return AnalysisError(f"no rate meets the targets: {' and '.join(missed)}; relax the target{advice}")


def simulated_answer(
    answer_type: type[_Answer], runs: Sequence[SimulatedRun], effort: Effort, owner: str = "", **own: object
) -> _Answer | OverloadedReplica:
    """Return a document whose fields are simulated metrics, with the half-widths of their intervals.

    Args:
        answer_type: type of the document; its field `half_width` has a field for each metric.
        runs: simulated runs of one replica.
        effort: length and seed of the runs.
        owner: text in front of the reason of an overload.
        own: values of further fields.
    """
    summary = summarise(runs)
    if summary.overload is not None:
        return OverloadedReplica(overload=f"{owner}{summary.overload}")
    metrics: Any = answer_type.model_fields["half_width"].annotation
    estimates = {name: _estimate(summary, name) for name in metrics.model_fields}
    values = {name: estimate.value for name, estimate in estimates.items()}
    widths = {name: estimate.half_width for name, estimate in estimates.items()}
    extent = {
        name: getattr(effort, name) for name in ("requests", "seed") if name in answer_type.model_fields
    }
    return answer_type.model_validate({**values, "half_width": widths, **extent, **own})


def _estimate(summary: Summary, name: str) -> IntervalEstimate:
    """Return the simulated metric that belongs to a field of an answer."""
    percentile = _PERCENTILE.fullmatch(name)
    metric = (percentile[3] or "e2e") if percentile else name.removesuffix("_ms").replace("mean", "e2e")
    estimate: Distribution | IntervalEstimate = getattr(summary, _METRICS.get(metric, metric))
    if isinstance(estimate, IntervalEstimate):
        return estimate
    return estimate.percentiles[int(percentile[1])] if percentile else estimate.mean
