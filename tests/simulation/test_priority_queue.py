"""Priorities in the queue of the simulated replica: order of admission, streams, and the closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from optimizer.arrays import IntArray
from optimizer.errors import AnalysisError
from optimizer.kinds.simulated import runs_of
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.priority.model import UNLIMITED_QUEUE, ClassMix, PriorityQueues
from optimizer.queueing.reference import ReplicaQueues
from optimizer.simulation.engine import SimulatedRun, simulate
from optimizer.simulation.law import IterationCoefficients, ProcessorSharingCoefficients
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.replicas import Effort, TokenReplica, run_replica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import Summary, summarise
from optimizer.simulation.workload import MergedLoad, OpenLoad
from optimizer.timing.law import RequestShapes
from optimizer.timing.linear import LinearLaw

MEAN_TOKENS = 401.0
"""Mean output: one more than the decode steps."""
SHARES = (0.2, 0.5, 0.3)


def run_with(priority: IntArray | None) -> SimulatedRun:
    """Run one long request, and five that queue behind it in a batch of one."""
    arrivals = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    tokens = np.array([50, 10, 10, 10, 10, 10])
    requests = Requests(0 * tokens + 1, tokens, arrivals, priority=priority)
    return simulate(requests, IterationCoefficients(base_ms=1.0), Limits(1, 64))


def test_highest_then_oldest_request_is_admitted_next() -> None:
    run = run_with(np.array([9, 3, 2, 3, 1, 2]))  # the first is already running and is not interrupted
    assert np.argsort(run.first_ms).tolist() == [0, 4, 2, 5, 1, 3]
    assert run.last_ms[0] == 50


def test_equal_priorities_are_first_come_first_served() -> None:
    plain, equal = run_with(None), run_with(np.full(6, 7))
    np.testing.assert_array_equal(plain.first_ms, equal.first_ms)
    assert np.argsort(plain.first_ms).tolist() == [0, 1, 2, 3, 4, 5]


def merged(rate_rps: float, shares: tuple[float, ...] = SHARES) -> MergedLoad:
    lengths = Lengths.with_cv(MEAN_TOKENS, 1.0, least=1)
    none = Lengths(LengthDistribution.FIXED, 0.0)
    streams = tuple(OpenLoad(share * rate_rps, none, lengths) for share in shares)
    return MergedLoad(streams, tuple(range(1, len(shares) + 1)))


def test_merged_loads_keep_their_rates_and_order() -> None:
    requests = merged(10.0, (0.2, 0.0, 0.8)).draw(20_000, np.random.SeedSequence(1))
    assert requests.arrival_ms is not None
    assert requests.stream is not None
    assert requests.priority is not None
    assert (np.diff(requests.arrival_ms) >= 0).all()
    np.testing.assert_array_equal(requests.priority, requests.stream + 1)
    assert len(requests) == pytest.approx(20_000, rel=0.05)
    rates = np.bincount(requests.stream, minlength=3) / requests.arrival_ms[-1] * 1000
    np.testing.assert_allclose(rates, [2, 0, 8], rtol=0.05)
    again = merged(10.0, (0.2, 0.0, 0.8)).draw(20_000, np.random.SeedSequence(1))
    np.testing.assert_array_equal(again.arrival_ms, requests.arrival_ms)


def test_few_requests_of_a_class_are_an_error() -> None:
    load = merged(10.0, (0.01, 0.99))
    replica = TokenReplica(ProcessorSharingCoefficients(1.0, 0.1, 0.0, 0.0), Limits(4, 64))
    runs = run_replica(load, replica, Effort(2000))
    with pytest.raises(AnalysisError, match=r"classes\[0\]: .* percentiles need 500"):
        runs_of(runs, load.streams[0], 0, "classes[0]")


def simulated(load: float, batch: int, effort: Effort) -> tuple[PriorityQueues, float, list[Summary]]:
    """Return the queue model of three classes, their total rate, and their simulation.

    Geometric outputs stand for exponential work.
    """
    base, slope = 1.0, 0.05
    steps_ms = (MEAN_TOKENS - 1) * np.array([base, slope])
    rate_rps = load * batch / (steps_ms[0] + steps_ms[1] * batch) * 1000
    one = np.ones(3)
    law = LinearLaw.of_rows(
        np.array([[base], [slope], [0.0], [0.0]]) * one, RequestShapes(0 * one, MEAN_TOKENS * one, one)
    )
    room = ReplicaLimits(np.full(3, batch), np.full(3, UNLIMITED_QUEUE), np.inf * one)
    inner = ReplicaQueues.of_law(law, room, Variability(one, one, one))
    queues = PriorityQueues.of(inner, [ClassMix.of(SHARES, (1, 2, 3))], one)
    replica = TokenReplica(ProcessorSharingCoefficients(base, slope, 0.0, 0.0), Limits(batch, 4096))
    mixed = merged(rate_rps)
    runs = []
    for seed in np.random.SeedSequence(effort.seed).spawn(effort.runs):
        requests = mixed.draw(effort.requests, seed)
        steps = np.random.default_rng(seed).geometric(1 / (MEAN_TOKENS - 1), len(requests))
        runs.append(replica.run(replace(requests, out_tokens=1 + steps)))
    return (
        queues,
        rate_rps,
        [summarise(runs_of(runs, own, i, "class")) for i, own in enumerate(mixed.streams)],
    )


def check(load: float, batch: int, effort: Effort, slack: float) -> None:
    queues, rate_rps, summaries = simulated(load, batch, effort)
    found = queues.analyze(np.full(3, rate_rps))
    for i, summary in enumerate(summaries):
        for mine, theirs in (
            (found.wait_ms[i], summary.ttft.mean),
            (found.wait_quantile(0.95)[i], summary.ttft.percentiles[95]),
            (found.response_ms[i], summary.e2e.mean),
        ):
            assert abs(mine - theirs.value) <= 2 * theirs.half_width + slack * theirs.value, (i, mine, theirs)


def test_closed_form_agrees_with_the_simulator() -> None:
    check(0.85, 4, Effort(40_000, runs=4), 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("batch", [1, 8, 32])
def test_closed_form_agrees_with_long_simulations(load: float, batch: int) -> None:
    check(load, batch, Effort(200_000, runs=8), 0.02)
