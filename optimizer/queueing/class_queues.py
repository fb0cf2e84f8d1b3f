"""Classes that share a replica by non-preemptive priority: a row for each class of a replica.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import Performance, QueueModel, ReplicaLimits, Variability
from optimizer.timing import Law


@dataclass(frozen=True, slots=True)
class ClassQueues(QueueModel):
    """R classes of replicas; rates are those of all classes of a replica together."""

    name: ClassVar[str] = "priority"
    means_only: ClassVar[bool] = False
    replicas: QueueModel
    """The replica of each row."""
    higher: FloatArray
    """Share of the requests that have a higher priority, shape (R,)."""
    not_lower: FloatArray
    """Share of the requests that have the same or a higher priority, shape (R,)."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether a measure is available: means only."""
        return measure.percentile is None

    @classmethod
    def of_law(cls, law: Law, room: ReplicaLimits, variability: Variability) -> Self:
        """Classes are not built from a law, but from replicas."""
        raise NotImplementedError

    @property
    def law_type(self) -> type[Law]:
        """The latency model that drives it."""
        return self.replicas.law_type

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lower end of the rates searched by sizing, shape (R,)."""
        return self.replicas.least_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate, shape (R,)."""
        return self.replicas.stable_rate_rps

    @property
    def is_non_monotone(self) -> BoolArray:
        """Whether a latency can fall as the rate grows, shape (R,)."""
        return self.replicas.is_non_monotone

    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run metrics of each class at rates of all classes > 0, shape (R,) (eq. 176)."""
        found = self.replicas.analyze(rate_rps)
        load = np.minimum(rate_rps / self.stable_rate_rps, 1 - 1e-9)
        factor = (1 - load) / ((1 - self.higher * load) * (1 - self.not_lower * load))
        longer = found.wait_ms * (factor - 1)
        return replace(
            found.take(np.arange(len(rate_rps))),
            wait_ms=found.wait_ms + longer,
            ttft_ms=found.ttft_ms + longer,
            response_ms=found.response_ms + longer,
        )
