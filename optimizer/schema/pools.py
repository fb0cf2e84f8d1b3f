"""Pools of a plan: replicas of a server on an accelerator, with their metrics."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.kinds.table import KindPoolFields
from optimizer.quantities import precise, quantity
from optimizer.queueing.measures import MISSED, metric_of
from optimizer.schema import EstimateEnd


class TargetFigure(Document):
    """A target on a statistic other than the mean, with its value and its limit."""

    measure: str
    """Name of the measured statistic: a percentile of a latency, such as `p95 TTFT`, or the fraction of
    requests that miss a target.
    """
    value: float
    """Value at the load of the pool [ms, or a fraction]."""
    limit: float
    """Limit in the unit of the value."""

    @property
    def text(self) -> str:
        """Value with its limit as text: ``p95 TTFT 512 ms (800 ms)``, ``97.6 % within (97 %)``."""
        if self.measure == MISSED.label:
            return f"{quantity(100 * (1 - self.value))} % within ({quantity(100 * (1 - self.limit))} %)"
        metric = metric_of(self.measure)
        scale, unit = (1.0, "") if metric is None else (metric.scale, f" {metric.unit}")
        value, limit = quantity(self.value * scale), precise(self.limit * scale)
        return f"{self.measure} {value}{unit} ({limit}{unit})"


class PoolShape(Document):
    """Requests of one shape in a pool, at its load."""

    name: str
    """Name of the shape."""
    share: float
    """Fraction of the requests that have this shape."""
    hit_rate: float = Field(0.0, alias="hitRate", exclude_if=not_)
    """Fraction of these requests that find their prefix in the cache; absent if it is 0."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency of the shape [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token of the shape [ms]."""
    stall_ms: float = Field(alias="stallMs")
    """Time by which one prompt of the shape delays the next token of every other request [ms]."""
    targets: tuple[TargetFigure, ...] = Field((), exclude_if=not_, strict=False)
    """Latency targets of the shape, with their values; for a shape without own targets those of all requests,
    as if they applied to it.
    """


class _PoolMetrics(Document):
    """Metrics that pools of all kinds have."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica [requests]."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load of the pool [requests/min]."""
    max_arrival_rate_rpm: float = Field(alias="maxArrivalRate")
    """Maximum load of the pool within all targets [requests/min]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency at the load [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token at the load; for batch servers the mean latency [ms]."""
    wait_ms: float = Field(alias="waitAverage")
    """Mean queueing time at the load, part of the time to first token [ms]."""
    utilization: float
    """Mean batch divided by the batch limit, at the load; for batch servers, the load divided by the maximum
    throughput.
    """
    loss: float
    """Fraction of requests rejected by a full queue, at the load."""


class _PoolBasis(Document):
    """Targets of a pool, its request shapes, and the sources of its token times."""

    shapes: tuple[PoolShape, ...] = Field((), exclude_if=not_, strict=False)
    """Request shapes of the load with their latencies; absent if the load has none."""

    doubts: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Reasons why the predictions for a load with request shapes are uncertain, so that a simulation with
    repair should confirm them; absent if there are none.
    """
    targets: tuple[TargetFigure, ...] = Field((), exclude_if=not_, strict=False)
    """Targets on statistics other than means, with their values; absent if there are none."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """End of the intervals of estimated token times that the plan uses; absent if token times are not
    estimated.
    """
    provenance: str | None = Field(None, exclude_if=is_none)
    """Provenance of token times that were fitted to benchmarks; absent for other token times."""
    outside: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Quantities of the load that are outside the benchmarks' range; absent if there are none."""


class Pool(_PoolBasis, KindPoolFields, _PoolMetrics):  # pydantic orders fields by the last base first
    """Replicas of one server on one accelerator, with their predicted performance at their load."""

    role: str | None = Field(None, exclude_if=is_none)
    """Purpose of replicas that do not serve the server's own requests; absent for other pools."""

    @property
    def placed_on(self) -> str:
        """Accelerator of the pool for tables, with the role of the replicas if they have one."""
        return f"{self.accelerator}, {self.role}" if self.role else self.accelerator


class Placement(Document):
    """An accelerator and a number of replicas."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
