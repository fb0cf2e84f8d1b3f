"""Sizing of a queue model whose latency falls and then grows with the rate: M/D/1 with a cold start.

A replica that was idle for longer than the keep-warm time takes a set-up time first. The mean wait follows
from the decomposition of M/G/1 with set-up (Doshi, Queueing Systems 1, 1986).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import (
    MS_PER_S,
    Performance,
    QueueModel,
    ReplicaLimits,
    Variability,
)
from optimizer.queueing.sizing import Sizing, largest_rate
from optimizer.queueing.targets import Targets
from optimizer.timing.law import Law
from optimizer.timing.linear import LinearLaw

SERVICE_MS, COLD_MS, KEEP_WARM_MS = 40.0, 1500.0, 2000.0
E2E = TargetMeasure("e2e")


def response_ms(rate_rps: float) -> float:
    """Return the mean response time: service, M/D/1 wait, and the share of the set-up time."""
    rate = rate_rps / MS_PER_S
    cold, load = math.exp(-rate * KEEP_WARM_MS), rate * SERVICE_MS
    mean, square = cold * COLD_MS, cold * COLD_MS**2
    wait = load * SERVICE_MS / (2 * (1 - load)) + (2 * mean + rate * square) / (2 * (1 + rate * mean))
    return SERVICE_MS + wait


@dataclass(frozen=True, slots=True)
class ColdStarts(QueueModel):
    """Identical replicas with cold starts."""

    name: ClassVar[str] = "cold starts"
    judges_shares: ClassVar[bool] = True
    service_ms: FloatArray

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> "ColdStarts":
        raise NotImplementedError

    @property
    def law_type(self) -> type[Law]:
        return LinearLaw

    @property
    def stable_rate_rps(self) -> FloatArray:
        return 0.999 * MS_PER_S / self.service_ms

    @property
    def least_rate_rps(self) -> FloatArray:
        return 1e-6 * self.stable_rate_rps

    @property
    def is_non_monotone(self) -> BoolArray:
        return np.ones(len(self.service_ms), np.bool_)

    def analyze(self, rate_rps: FloatArray) -> Performance:
        none = np.zeros(len(rate_rps))
        response = np.array([response_ms(rate) for rate in rate_rps.tolist()])
        wait = response - self.service_ms
        load = rate_rps * self.service_ms / MS_PER_S
        means = rate_rps, rate_rps, response, wait, self.service_ms, none, response, none
        return Performance(*means, load, rate_rps * wait / MS_PER_S, load, none, 1 - load, none)


def sized(*limits_ms: float) -> Sizing:
    replicas = ColdStarts(np.full(len(limits_ms), SERVICE_MS))
    return largest_rate(
        replicas, Targets.of_limits([{E2E: ms} for ms in limits_ms], np.zeros(len(limits_ms), np.bool_))
    )


def test_the_lowest_rate_can_miss_what_higher_rates_meet() -> None:
    limit = 200.0
    assert response_ms(1e-3) > limit
    found = sized(limit, 100.0)
    assert found.attainable.all()
    for highest, lowest, ms in zip(found.max_rate_rps, found.lowest_rate_rps, (limit, 100.0), strict=True):
        assert response_ms(highest * (1 - 1e-6)) <= ms < response_ms(highest * (1 + 1e-6))
        assert response_ms(lowest * (1 + 1e-6)) <= ms < response_ms(lowest * (1 - 1e-6))
    # Without cold starts: W = ρs / 2(1 - ρ) = 160 ms at ρ = 8/9, where a cold start is as good as impossible.
    assert found.max_rate_rps[0] == pytest.approx(8 / 9 * MS_PER_S / SERVICE_MS, rel=1e-6)


def test_a_limit_below_the_minimum_is_unattainable() -> None:
    assert not sized(SERVICE_MS).attainable.any()
