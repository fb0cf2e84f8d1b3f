"""Documents of service classes: priorities and targets."""

from collections.abc import Collection, Iterator, Mapping
from math import inf
from operator import not_
from typing import Annotated

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    Document,
    In,
    MaxLoss,
    Milliseconds,
    Name,
    Percentile,
    Priority,
    TokensPerSecond,
    is_none,
)
from optimizer.features.fields import ClassFeatureFields
from optimizer.kinds.fields import LatencyTarget
from optimizer.queueing.measures import LATENCIES, LatencyName, MetricName, TargetMeasure
from optimizer.queueing.performance import MS_PER_S
from optimizer.units import SHARE

OFFLINE_PRIORITY = 101
"""Rank of offline work, which follows the lowest priority of a service class."""


def priority_name(priority: int) -> str:
    """Return a priority as text for readers."""
    return "offline work" if priority == OFFLINE_PRIORITY else f"priority {priority}"


class ShapeTarget(Document):
    """Service-level targets of one request shape; 0 means no target."""

    itl_ms: Milliseconds = Field(0.0, alias="slo-itl")
    """Maximum inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="slo-ttft")
    """Maximum time to first token [ms]."""
    e2e_ms: Milliseconds = Field(0.0, alias="slo-e2e")
    """Maximum time to the last token [ms]."""


class ModelTarget(Document):
    """Service-level targets of a model in a service class; 0 means no target."""

    model: Name
    """Name of the model."""
    itl_ms: Milliseconds = Field(0.0, alias="slo-itl")
    """Maximum inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="slo-ttft")
    """Maximum time to first token [ms]."""
    e2e_ms: Milliseconds = Field(0.0, alias="slo-e2e")
    """Maximum time to the last token [ms]."""
    user_tps: TokensPerSecond = Field(0.0, alias="slo-user-tps")
    """Minimum tokens per second of each response; equivalent to a maximum inter-token latency of 1000 divided
    by it.
    """
    tps: TokensPerSecond = Field(0.0, alias="slo-tps")
    """Token throughput [tokens/s]; the load is derived from it instead of from the arrival rate."""
    percentile: Percentile | None = None
    """Percentile to which the latency targets apply; default: the mean. Needs `queueModel: continuous` in all
    profiles of the model.
    """
    goodput_share: Annotated[float, In(SHARE, gt=0, lt=1)] | None = Field(None, alias="goodputShare")
    """Minimum fraction of requests that meet all latency targets; excludes `percentile`, and needs
    `queueModel: continuous`.
    """
    max_loss: MaxLoss | None = Field(None, alias="maxLoss")
    """Maximum fraction of requests rejected by a full queue, or `none` for unlimited; default: `maxLoss` of
    the options.
    """
    latency: tuple[LatencyTarget, ...] = Field((), strict=False, exclude_if=not_)
    """Limits on the time to the complete response, optionally at several percentiles."""
    shapes: dict[Name, ShapeTarget] = Field({}, exclude_if=not_)
    """Additional targets of request shapes, by name: over the requests of the shape, with the same statistic
    (`percentile` or the mean). The other targets apply to all requests of a server together.
    """
    max_rejected: MaxLoss | None = Field(None, alias="maxRejected", exclude_if=is_none)
    """Other name of `maxLoss`, for batch servers; give only one of the two."""

    _hit_rate: float = PrivateAttr(0.0)

    def of_misses(self, hit_rate: float, changed: Mapping[str, object]) -> "ModelTarget":
        """Return a changed copy whose percentiles refer only to the requests that miss a result cache.

        Args:
            hit_rate: fraction of requests that the cache serves.
            changed: new values of fields.
        """
        target = self.model_copy(update=changed)
        target._hit_rate = hit_rate  # noqa: SLF001  of a copy of itself
        return target

    @model_validator(mode="after")
    def _one_bound_on_loss(self) -> "ModelTarget":
        if self.max_loss is not None and self.max_rejected is not None:
            raise PydanticCustomError("two_losses", "maxLoss and maxRejected have the same meaning; keep one")
        return self

    @property
    def largest_loss(self) -> float | None:
        """Maximum fraction of rejected requests, under either name; None selects that of the options."""
        return self.max_loss if self.max_rejected is None else self.max_rejected

    @model_validator(mode="after")
    def _goodput_has_limits(self) -> "ModelTarget":
        if self.goodput_share is not None and self.percentile is not None:
            raise PydanticCustomError(
                "goodput_percentile", "goodputShare and percentile exclude each other; keep one"
            )
        if self.goodput_share is not None and not self.request_limits():
            raise PydanticCustomError("goodput_limits", "goodputShare requires a latency target; add one")
        return self

    def of_shapes(self, names: Collection[str]) -> "ModelTarget":
        """Return the targets for a load with the shapes of the given names."""
        if self.shapes.keys() <= set(names):
            return self
        return self.model_copy(
            update={"shapes": {name: own for name, own in self.shapes.items() if name in names}}
        )

    def request_limits(self) -> dict[LatencyName, float]:
        """Return the latency limits of requests by metric [ms]."""
        limits = {metric: limit for metric, field in LATENCIES.items() if (limit := getattr(self, field))}
        if self.user_tps:
            limits["itl"] = min(limits.get("itl", inf), MS_PER_S / self.user_tps)
        return limits

    def latency_targets(self) -> Iterator[tuple[TargetMeasure, float]]:
        """Yield the measure and the limit of each latency target [ms], without duplicates."""
        limits: dict[TargetMeasure, float] = {}
        if self.goodput_share is not None:
            limits[TargetMeasure("missed", hit_rate=self._hit_rate)] = 1 - self.goodput_share
        else:
            for metric, limit in self.request_limits().items():
                limits[self._measure(metric, self.percentile)] = limit
        for shape, own in self.shapes.items():
            for metric, field in LATENCIES.items():
                if limit := getattr(own, field):
                    limits[self._measure(metric, self.percentile)._replace(shape=shape)] = limit
        for target in self.latency:
            measure = self._measure(target.measure.metric, target.percentile)
            limits[measure] = min(limits.get(measure, inf), target.limit_ms)
        yield from limits.items()

    def _measure(self, metric: MetricName, percentile: float | None) -> TargetMeasure:
        return TargetMeasure(metric, percentile, 0.0 if percentile is None else self._hit_rate)


class _Targets(Document):
    """Fields of a service class that do not belong to a feature."""

    name: Name
    """Unique name of the service class."""
    priority: Priority = 100
    """Priority: 1 is the highest, 100 the lowest."""
    model_targets: tuple[ModelTarget, ...] = Field((), alias="modelTargets", strict=False, fail_fast=True)
    """Targets by model."""


FIELDS_OF_SERVERS = tuple(ClassFeatureFields.model_fields)
"""Fields that a service class sets for its servers; a server's own value takes precedence."""


class ServiceClass(ClassFeatureFields, _Targets):  # pydantic puts the last base's fields first
    """A service class: a kind of customer or use, with its priority and its targets by model."""
