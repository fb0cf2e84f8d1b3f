"""Pools of a plan: replicas of a server on an accelerator, with their metrics."""

from operator import not_
from typing import Self

from pydantic import Field

from optimizer.documents import EstimateEnd, OutputDocument, OutputShare, is_none
from optimizer.kinds.table import KindPoolFields
from optimizer.quantities import precise, quantity
from optimizer.queueing.measures import LATENCIES, METRICS, MISSED, MetricName, TargetMeasure


class TargetFigure(OutputDocument):
    """A target with the value at the load; latencies are in milliseconds."""

    metric: MetricName
    """Limited metric: `itl`, `ttft`, `e2e`, or `missed` or `loss`, the shares of requests that miss a target
    or are rejected.
    """
    statistic: str
    """Limited statistic of the metric: `mean`, a percentile such as `p95`, or `share` of requests. With a
    result cache, percentiles are those of all requests: `p95 of all requests`.
    """
    shape: str = Field("", exclude_if=not_)
    """Name of the request shape whose requests count; absent for all requests."""
    value_ms: float | None = Field(None, exclude_if=is_none)
    """Value at the load of the pool [ms]; absent for shares of requests."""
    limit_ms: float | None = Field(None, exclude_if=is_none)
    """Limit of the value [ms]; absent for shares of requests."""
    value_share: OutputShare | None = Field(None, exclude_if=is_none)
    """Share of requests at the load; absent for latencies."""
    limit_share: float | None = Field(None, exclude_if=is_none)
    """Limit of the share; absent for latencies."""

    @classmethod
    def of(cls, measure: TargetMeasure, value: float, limit: float) -> Self:
        """Create a target from its measure, value and limit [ms, or a fraction]."""
        name, unit = measure.metric, "ms" if measure.metric in LATENCIES else "share"
        statistic = measure.statistic if measure.metric in LATENCIES else "share"
        if measure.percentile is not None and measure.hit_rate:
            statistic += OF_ALL
        numbers = {f"value_{unit}": value, f"limit_{unit}": limit}
        return cls(metric=name, statistic=statistic, shape=measure.shape, **numbers)

    @property
    def value(self) -> float:
        """Value at the load of the pool [ms, or a fraction]."""
        return self.value_ms if self.value_ms is not None else self.value_share or 0.0

    @property
    def limit(self) -> float:
        """Limit in the unit of the value."""
        return self.limit_ms if self.limit_ms is not None else self.limit_share or 0.0

    @property
    def is_of_mean(self) -> bool:
        """Whether the target limits the mean ITL or TTFT of all requests, which pools also state."""
        return self.statistic == "mean" and self.metric in {"itl", "ttft"} and not self.shape

    @property
    def measure(self) -> str:
        """Display name of the limited statistic, such as `p95 TTFT`."""
        label = METRICS[self.metric].label + (f" of {self.shape}" if self.shape else "")
        if self.statistic in {"mean", "share"}:
            return label
        owner = "'" if self.statistic.endswith(OF_ALL) else ""
        return f"{self.statistic}{owner} {label}"

    @property
    def text(self) -> str:
        """Value with its limit as text: ``p95 TTFT 512 ms (800 ms)``, ``97.6 % within (97 %)``."""
        if self.metric == MISSED.metric:
            return f"{quantity(100 * (1 - self.value))} % within ({quantity(100 * (1 - self.limit))} %)"
        metric = METRICS[self.metric]
        value, limit = quantity(self.value * metric.scale), precise(self.limit * metric.scale)
        return f"{self.measure} {value} {metric.unit} ({limit} {metric.unit})"


OF_ALL = " of all requests"
"""End of the statistic of a server with a result cache, whose percentiles count all requests."""


class WithTargets(OutputDocument):
    """A pool or a server with its targets."""

    targets: tuple[TargetFigure, ...] = Field((), exclude_if=not_, strict=False)
    """Targets with their values at the load; absent without targets, and for pools of shared queues, whose
    members have the targets.
    """

    @property
    def other_targets(self) -> tuple[TargetFigure, ...]:
        """Targets on other statistics than the mean ITL and TTFT."""
        return tuple(figure for figure in self.targets if not figure.is_of_mean)


class PoolShape(OutputDocument):
    """Requests of one shape in a pool, at its load."""

    name: str
    """Name of the shape."""
    share: OutputShare
    """Fraction of the requests that have this shape."""
    hit_rate: OutputShare = Field(0.0, exclude_if=not_)
    """Fraction of these requests that find their prefix in the cache; absent if it is 0."""
    itl_ms: float
    """Mean inter-token latency of the shape [ms]."""
    ttft_ms: float
    """Mean time to first token of the shape [ms]."""
    stall_ms: float
    """Time by which one prompt of the shape delays the next token of every other request [ms]."""
    targets: tuple[TargetFigure, ...] = Field((), exclude_if=not_, strict=False)
    """Latency targets of the shape, with their values; for a shape without own targets those of all requests,
    as if they applied to it.
    """


class _PoolOwner(OutputDocument):
    """The server to which a pool belongs, and its cards."""

    service_class: str
    """Service class of the server."""
    model: str
    """Model of the server."""
    priority: int
    """Priority of the server."""
    type: str
    """Accelerator type."""
    cards: int
    """Number of cards of the type that the pool uses; 0 on shared cards, which the group counts."""


class _PoolMetrics(OutputDocument):
    """Metrics that pools of all kinds have."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas."""
    max_batch: int
    """Batch limit of a replica [requests]."""
    cost_cents_per_h: float
    """Cost of the pool [cents/h]."""
    arrival_rate_rpm: float
    """Load of the pool [requests/min]."""
    max_arrival_rate_rpm: float
    """Maximum load of the pool within all targets [requests/min]."""
    itl_ms: float
    """Mean inter-token latency at the load [ms]."""
    ttft_ms: float
    """Mean time to first token at the load; for batch servers the mean latency [ms]."""
    wait_ms: float
    """Mean queueing time at the load, part of the time to first token [ms]."""
    utilization: OutputShare
    """Mean batch divided by the batch limit, at the load; for batch servers, the load divided by the maximum
    throughput.
    """
    loss: OutputShare
    """Fraction of requests rejected by a full queue, at the load."""


class _PoolBasis(OutputDocument):
    """Targets of a pool, its request shapes, and the sources of its token times."""

    shapes: tuple[PoolShape, ...] = Field((), alias="requestShapes", exclude_if=not_, strict=False)
    """Request shapes of the load with their latencies; absent if the load has none."""

    doubts: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Reasons why the predictions for a load with request shapes are uncertain, so that a simulation with
    repair should confirm them; absent if there are none.
    """
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """End of the intervals of estimated token times that the plan uses; absent if token times are not
    estimated.
    """
    provenance: str | None = Field(None, exclude_if=is_none)
    """Provenance of token times that were fitted to benchmarks; absent for other token times."""
    outside: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Quantities of the load that are outside the benchmarks' range; absent if there are none."""


class Pool(
    _PoolBasis, KindPoolFields, WithTargets, _PoolMetrics, _PoolOwner
):  # pydantic orders fields by the last base first
    """Replicas of one server on one accelerator, with their predicted performance at their load."""

    role: str | None = Field(None, exclude_if=is_none)
    """Purpose of replicas that do not serve the server's own requests; absent for other pools."""

    @property
    def placed_on(self) -> str:
        """Accelerator of the pool for tables, with the role of the replicas if they have one."""
        return f"{self.accelerator}, {self.role}" if self.role else self.accelerator


class Placement(OutputDocument):
    """An accelerator and a number of replicas."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas."""
