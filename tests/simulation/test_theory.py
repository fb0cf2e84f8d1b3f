"""The engine where theory knows the answer: laws and lengths under which it is a textbook queue.

A request is then an answer of many tokens with iterations of 1 ms, or of so much for each request in the
batch; the one token of its prompt costs nothing. Answers of geometric length with a mean of thousands stand
for exponential service: the difference is a thousandth and less. Each figure must lie within twice its 95 %
interval, and the interval must be narrow enough to tell something. Seeds are fixed.
"""

import math

import numpy as np
import pytest
from scipy.special import pdtr
from slow_cases import mostly_slow

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.birth_death import BirthDeathQueue
from optimizer.simulation.engine import SimulatedRun, simulate
from optimizer.simulation.law import Coefficients, IterationCoefficients, ProcessorSharingCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import IntervalEstimate, Summary, summarise

TOKENS = 5_000
"""Mean answer; with iterations of 1 ms the mean service time [ms]."""
RUNS = 8
ONE_BY_ONE = IterationCoefficients(base_ms=1.0)
SHARED = IterationCoefficients(per_sequence_ms=1.0)


def geometric(count: int, rng: np.random.Generator) -> IntArray:
    return rng.geometric(1 / TOKENS, count)


def fixed(count: int, rng: np.random.Generator) -> IntArray:  # noqa: ARG001
    return np.full(count, TOKENS)


def two_valued(count: int, rng: np.random.Generator) -> IntArray:
    """Nine short answers to a long one: the coefficient of variation is 2.7."""
    return np.where(rng.random(count) < 0.9, TOKENS // 10, TOKENS * 91 // 10)


def runs(
    times: Coefficients, limits: Limits, load: float, lengths: object, count: int, prompt: int = 1
) -> list[SimulatedRun]:
    """Return runs at a load of so many mean answers [in milliseconds of one server]."""
    made = []
    for seed in np.random.SeedSequence(7).spawn(RUNS):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(TOKENS / load, count))
        answers = lengths(count, rng)  # type: ignore[operator]
        made.append(simulate(Requests(np.full(count, prompt), answers, arrivals), times, limits))
    return made


def summary_of(
    times: Coefficients, limits: Limits, load: float, lengths: object, count: int = 60_000
) -> Summary:
    found = summarise(runs(times, limits, load, lengths, count))
    assert found.overload is None
    return found


def agrees(found: IntervalEstimate, theory: float, precision: float) -> None:
    assert abs(found.value - theory) <= 2 * found.half_width, (found, theory)
    assert found.half_width <= precision * theory, (found, theory)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "precision"), mostly_slow([(0.6, 0.04), (0.95, 0.2), (0.3, 0.03), (0.8, 0.08)], 1)
)
def test_one_slot_and_geometric_outputs_match_m_m_1(load: float, precision: float) -> None:
    found = summary_of(ONE_BY_ONE, Limits(1, 1), load, geometric)
    response_ms = TOKENS / (1 - load)
    agrees(found.ttft.mean, load * response_ms + 1, precision)
    agrees(found.e2e.mean, response_ms, precision)
    for percent in (50, 90, 95, 99):
        agrees(found.e2e.percentiles[percent], -response_ms * math.log(1 - percent / 100), 2 * precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "precision"), mostly_slow([(0.6, 0.04), (0.95, 0.15), (0.3, 0.03), (0.8, 0.07)], 1)
)
def test_one_slot_and_equal_outputs_match_m_d_1(load: float, precision: float) -> None:
    found = summary_of(ONE_BY_ONE, Limits(1, 1), load, fixed)
    agrees(found.ttft.mean, load * TOKENS / (2 * (1 - load)) + 1, precision)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "precision"), mostly_slow([(0.8, 0.09), (0.95, 0.2), (0.5, 0.15)], 1))
def test_independent_slots_match_m_m_c(load: float, precision: float) -> None:
    places = 8
    found = summary_of(ONE_BY_ONE, Limits(places, places), load * places, geometric)
    offered = load * places
    blocking = float(1 - pdtr(places - 1, offered) / pdtr(places, offered))
    waits = blocking / (1 - load * (1 - blocking))
    half_an_iteration_ms = 0.5
    wait_ms = waits * TOKENS / (places * (1 - load))
    agrees(found.ttft.mean, wait_ms + 1 + half_an_iteration_ms, precision)


@pytest.mark.few(1)
@pytest.mark.parametrize("lengths", [geometric, fixed, two_valued])
@pytest.mark.parametrize(("load", "precision"), mostly_slow([(0.8, 0.12), (0.5, 0.05), (0.95, 0.3)], 1))
def test_batch_proportional_iterations_share_the_processor(
    lengths: object, load: float, precision: float
) -> None:
    found = summary_of(SHARED, Limits(UNLIMITED, UNLIMITED), load, lengths, 30_000)
    agrees(found.e2e.mean, TOKENS / (1 - load), precision)


def chain(times_ms: FloatArray, load: float, queue: int) -> tuple[float, float]:
    """Return the mean number inside and the loss of the reference's chain; service times by batch, from 1."""
    batch = np.arange(1, len(times_ms) + 1)
    found = BirthDeathQueue.from_rates(
        np.log(batch / times_ms), np.array([len(times_ms)]), np.array([queue])
    ).solve(np.log(np.array([load / TOKENS])))
    return float(found.in_service[0] + found.in_queue[0]), float(1 - found.acceptance[0])


@pytest.mark.slow
@pytest.mark.parametrize("load", mostly_slow([0.7, 1.2, 0.3, 0.95], 1))
@pytest.mark.parametrize("shared", [False, True])
def test_engine_matches_the_reference_chain(load: float, shared: bool) -> None:  # noqa: FBT001
    places, queue, base, slope = 16, 24, 0.5, 0.25
    largest = places / (base + slope * places)
    if shared:
        times: Coefficients = ProcessorSharingCoefficients(base, slope, 0.0, 0.0)
    else:
        times = IterationCoefficients(base_ms=base, per_sequence_ms=slope)
    prompt = 0 if shared else 1
    made = runs(times, Limits(places, UNLIMITED, max_queue=queue), load * largest, geometric, 40_000, prompt)
    found = summarise(made)
    batch = np.arange(1, places + 1, dtype=np.float64)
    inside, loss = chain(TOKENS * (base + slope * batch), load * largest, queue)
    accepted_per_ms = load * largest / TOKENS * (1 - loss)
    agrees(found.e2e.mean, inside / accepted_per_ms, 0.05)
    assert abs(found.loss.value - loss) <= 2 * found.loss.half_width + 1e-4
    if load > 1:
        assert found.loss.value > 0.15
