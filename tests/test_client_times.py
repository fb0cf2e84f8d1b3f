"""What a client sees beyond the engine's times: the five terms in the simulator and in both queue models."""

import math

import numpy as np
import pytest

from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.simulation.engine import simulate
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.requests import Requests
from optimizer.simulation.workload import OpenLoad
from optimizer.timing.iteration import FullIterationLaw
from optimizer.timing.law import RequestShapes

LAW = {"alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "weightRead": 4.3}
SEEN = {"clientOffset": 7.4, "pipelineDepth": 0.84, "frontEndLag": 0.0022, "pauseOffset": 8.0}
COEFFICIENTS = IterationCoefficients(6.83, 0.0224, 4.36e-5, weight_read_ms=4.3)
CLIENT = {"client_offset_ms": 7.4, "pipeline_depth": 0.84, "front_end_lag": 0.0022, "pause_offset_ms": 8.0}


def replica(**terms: float) -> Replica:
    given = {
        "perfParms": LAW | terms, "maxBatch": 256, "inTokens": 512, "outTokens": 128,
        "inTokensCV": 0, "outTokensCV": 0, "queueModel": "continuous",
    }  # fmt: skip
    return Replica.model_validate(given)


def test_a_lone_request_is_seen_later_by_the_offset_alone() -> None:
    one = Requests(np.array([512]), np.array([128]), np.array([0.0]))
    plain = simulate(one, COEFFICIENTS, Limits(8, 8192))
    seen = simulate(one, COEFFICIENTS._replace(**CLIENT), Limits(8, 8192))
    assert seen.ttft_ms - plain.ttft_ms == pytest.approx(7.4)
    assert seen.e2e_ms - plain.e2e_ms == pytest.approx(7.4)
    assert (seen.itl_ms == plain.itl_ms).all()


def test_second_request_sees_pipeline_and_front_end_delay() -> None:
    two = Requests(np.array([64, 64]), np.array([100, 100]), np.array([0.0, 50.0]))
    plain = simulate(two, COEFFICIENTS, Limits(8, 8192))
    seen = simulate(two, COEFFICIENTS._replace(**CLIENT), Limits(8, 8192))
    later = seen.ttft_ms - plain.ttft_ms
    assert later[0] == pytest.approx(7.4)
    paused = 8.0 * (1 - math.exp(-0.05))
    assert later[1] == pytest.approx(7.4 + (0.84 + 0.0022) * plain.itl_ms[1] + paused)


def test_a_prompt_after_a_pause_is_seen_later_only_beside_others() -> None:
    law = COEFFICIENTS._replace(pause_offset_ms=8.0)
    beside = Requests(np.array([64] * 3), np.array([2000] * 3), np.array([0.0, 100.0, 5100.0]))
    alone = Requests(np.array([64] * 2), np.array([10] * 2), np.array([0.0, 5000.0]))
    for requests, expected in (
        (beside, [0, 8 * (1 - math.exp(-0.1)), 8 * (1 - math.exp(-5))]),
        (alone, [0, 0]),
    ):
        plain, seen = (simulate(requests, one, Limits(8, 8192)) for one in (COEFFICIENTS, law))
        assert seen.ttft_ms - plain.ttft_ms == pytest.approx(expected)


def test_a_request_is_seen_later_if_no_other_is_in_progress() -> None:
    sent_ms = np.array([0.0, 50.0, 9000.0, 20000.0, 20000.0])
    requests = Requests(np.array([64] * 5), np.array([20] * 5), sent_ms)
    plain, seen = (
        simulate(requests, law, Limits(8, 8192))
        for law in (COEFFICIENTS, COEFFICIENTS._replace(idle_offset_ms=9.0))
    )
    assert seen.ttft_ms - plain.ttft_ms == pytest.approx([9, 0, 9, 0, 0])


def test_simulator_and_closed_form_agree_on_idle_engines() -> None:
    document = replica().model_dump(by_alias=True, exclude_unset=True)
    plain, seen = analyze_replicas(
        [Replica.model_validate(document | {"perfParms": LAW | more}) for more in ({}, {"idleOffset": 60.0})],
        [0.1, 0.1],
    )
    load = OpenLoad(0.1, Lengths.with_cv(512, 0), Lengths.with_cv(128, 0))
    requests = load.draw(3000, np.random.SeedSequence(3))
    laws = COEFFICIENTS, COEFFICIENTS._replace(idle_offset_ms=60.0)
    runs = [simulate(requests, one, Limits(256, 8192)) for one in laws]
    simulated = float(np.mean(runs[1].ttft_ms - runs[0].ttft_ms))
    assert simulated > 50
    assert seen.ttft_ms - plain.ttft_ms == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize(("rate", "cv"), [(0.4, 0.0), (1.2, 0.0), (0.4, 1.0), (1.2, 1.0)])
def test_simulator_and_closed_form_agree_on_pauses(rate: float, cv: float) -> None:
    law = COEFFICIENTS._replace(pause_offset_ms=8.0)
    given = {"arrivalCV": cv, "outTokens": 4096}
    document = replica(pauseOffset=8.0).model_dump(by_alias=True, exclude_unset=True)
    plain, seen = analyze_replicas(
        [
            Replica.model_validate(document | given | {"perfParms": LAW | more})
            for more in ({}, {"pauseOffset": 8.0})
        ],
        [rate, rate],
    )
    load = OpenLoad(rate, Lengths.with_cv(512, 0), Lengths.with_cv(4096, 0), cv)
    requests = load.draw(3000, np.random.SeedSequence(2))
    runs = [simulate(requests, one, Limits(256, 8192)) for one in (COEFFICIENTS, law)]
    simulated = float(np.mean(runs[1].ttft_ms - runs[0].ttft_ms))
    assert seen.ttft_ms - plain.ttft_ms == pytest.approx(simulated, rel=0.05)


def test_sizing_looks_at_lower_rates_where_pauses_count() -> None:
    """With long pauses a replica that is asked less answers later."""
    law = FullIterationLaw.of_rows(
        np.array([[value] for value in FullIterationLaw.parameters(replica(pauseOffset=60.0))]),
        RequestShapes(np.array([512.0]), np.array([1024.0])),
    )
    one = np.ones(1)
    queues = ContinuousQueues.of_law(
        law,
        ReplicaLimits(np.array([256]), np.array([2560]), np.inf * one),
        Variability(one, 0 * one, 0 * one),
    )
    rates = np.array([[1.0], [8.0]])
    slow, fast = (queues.analyze(rate).ttft_ms[0] for rate in rates)
    assert slow > fast
    assert queues.is_non_monotone.all()


def test_client_delay_matches_between_simulator_and_model() -> None:
    plain, seen = analyze_replicas([replica(), replica(**SEEN)], [20, 20])
    load = OpenLoad(20, Lengths.with_cv(512, 0), Lengths.with_cv(128, 0))
    requests = load.draw(4000, np.random.SeedSequence(1))
    runs = [
        simulate(requests, law, Limits(256, 8192)) for law in (COEFFICIENTS, COEFFICIENTS._replace(**CLIENT))
    ]
    simulated = float(np.mean(runs[1].ttft_ms - runs[0].ttft_ms))
    assert simulated > 7.4 + 0.8 * float(plain.itl_ms)
    assert seen.ttft_ms - plain.ttft_ms == pytest.approx(simulated, rel=0.03)
    assert seen.response_ms - plain.response_ms == pytest.approx(simulated, rel=0.03)


def test_the_closed_form_leaves_the_server_as_it_is() -> None:
    plain, seen = analyze_replicas([replica(), replica(**SEEN)], [20, 20])
    for name in ("itl_ms", "wait_ms", "prefill_ms", "service_ms", "in_service", "in_queue", "utilization"):
        assert getattr(seen, name) == pytest.approx(getattr(plain, name), rel=1e-12), name
    assert plain.ttft_percentiles is not None
    assert seen.ttft_percentiles is not None
    later = seen.ttft_ms - plain.ttft_ms
    assert seen.ttft_percentiles.p95_ms - plain.ttft_percentiles.p95_ms == pytest.approx(later)
