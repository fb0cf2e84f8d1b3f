"""Rows with classes: several classes of requests, with priorities, in the queue of one replica.

Such a row has `classes` instead of `RPS`. Rates are in requests per second, times in ms.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem
from optimizer.compat.rows import LinearRow, ReplicaRow, RowAnswer
from optimizer.documents import Coefficient
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import LatencyTargets
from optimizer.kinds.request_classes import (
    MAX_CLASSES,
    ClassFigures,
    RequestClass,
    class_figures,
    class_queues,
    figures_of_all_classes,
)
from optimizer.kinds.rows import OverloadedReplica, UnstableReplica
from optimizer.kinds.simulated import ClassSimulation, simulate_classes
from optimizer.queueing.priority.model import PriorityQueues
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.replicas import Effort


class ClassAnswer(QueueAnswer):
    """The answer for a row: means over all requests, and the performance of each class."""

    classes: tuple[ClassFigures, ...] = Field(strict=False)
    """Performance of each class, in the row's order."""


class ClassRowAnswer(RowAnswer):
    """The answer for a row with classes, with percentiles."""

    classes: tuple[ClassFigures, ...] = Field(strict=False)
    """Performance of each class, in the row's order."""


class _ClassFields(QueueProblem):
    """A token replica whose queue has several classes of requests."""

    classes: tuple[RequestClass, ...] = Field(strict=False, min_length=1, max_length=MAX_CLASSES)
    """Classes of requests, instead of `RPS`; the queue has no limit. Sizing keeps their proportions."""
    work_cv: Coefficient | None = Field(None, alias="workCV")
    """Coefficient of variation of the work of a request; default: `outTokensCV`, or 1 without it."""

    @model_validator(mode="after")
    def _only_classes(self) -> "_ClassFields":
        for name, why in (
            ("rate_rps", "the classes give their rates"),
            ("max_queue", "the queue of a row with classes has no limit"),
        ):
            if name in self.model_fields_set:
                alias = type(self).model_fields[name].alias
                raise PydanticCustomError(
                    "classes", "{field}: {why}; remove it", {"field": alias, "why": why}
                )
        if getattr(self, "batching", "continuous") != "continuous":
            raise PydanticCustomError(
                "classes", "classes: only a continuous batch has classes; remove batching, or classes"
            )
        return self

    def queues(self) -> PriorityQueues:
        """Return the queue model of the classes."""
        replica = self.replica()
        work_cv = replica.out_tokens_cv if self.work_cv is None else self.work_cv
        return class_queues(replica, self.classes, work_cv)

    def analyze(self) -> ClassAnswer | ClassRowAnswer | UnstableReplica:
        """Return the performance of all requests and of each class, or an `UnstableReplica`."""
        rate_rps = sum(one.rate_rps for one in self.classes)
        queues = self.queues()
        stable_rate_rps = float(queues.stable_rate_rps[0])
        if rate_rps > stable_rate_rps:
            return UnstableReplica.beyond(rate_rps, stable_rate_rps)
        return self._answer(queues, rate_rps)

    def size(self) -> ClassAnswer | ClassRowAnswer:
        """Return the maximum total rate at which each class meets the targets."""
        queues, wanted = self.queues(), self.targets()
        rates = {f"rate_{name}_rps": _largest(queues, wanted.only(f"{name}_ms")) for name in ("ttft", "itl")}
        rate_rps = _largest(queues, wanted)
        if np.isnan(rate_rps):
            raise AnalysisError(
                "no rate meets the targets in every class; relax the target or use faster token times"
            )
        return self._answer(queues, rate_rps, **rates)

    def simulate(self, effort: Effort) -> ClassSimulation | OverloadedReplica:
        """Return the simulated performance of each class; output lengths vary as the work does."""
        replica = self.replica()
        if self.work_cv is not None:
            replica = replica.model_copy(update={"out_tokens_cv": self.work_cv})
        return simulate_classes(replica, self.classes, effort)

    def _answer(
        self, queues: PriorityQueues, rate_rps: float, **rates: float
    ) -> ClassAnswer | ClassRowAnswer:
        found = queues.analyze(np.full(len(self.classes), rate_rps))
        figures: dict[str, Any] = figures_of_all_classes(found) | rates
        figures |= dict.fromkeys(("offered_rps", "throughput_rps"), rate_rps)  # nothing is rejected
        figures |= {"stable_rate_rps": float(queues.stable_rate_rps[0])}
        figures |= {"classes": class_figures(found, self.classes)}
        kind = ClassAnswer if queues.queues.means_only else ClassRowAnswer
        return kind.model_validate({name: figures[name] for name in kind.model_fields if name in figures})


class ReplicaClassRow(_ClassFields, ReplicaRow):
    """One replica with several classes of requests, in the reference's format with extensions."""


class LinearClassRow(_ClassFields, LinearRow):
    """One replica under the linear law with several classes of requests."""


def _largest(queues: PriorityQueues, wanted: LatencyTargets) -> float:
    """Return the maximum rate at which all classes meet their targets; NaN if there is none."""
    count = len(queues.share)
    targets = Targets.of_limits([wanted.limits()] * count, np.zeros(count, np.bool_))
    return float(largest_rate(queues, targets).max_rate_rps.min())
