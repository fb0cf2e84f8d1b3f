"""What a client sees beyond the engine's times: the three terms in the simulator and in both queue models."""

import numpy as np
import pytest

from optimizer import SpecError
from optimizer.replica import Replica, analyze_replicas
from optimizer.simulation import IterationCoefficients, Lengths, Limits, OpenLoad, Requests, simulate
from optimizer.simulation.lengths import Kind
from optimizer.spec.messages import validated

LAW = {"alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "weightRead": 4.3}
SEEN = {"clientOffset": 7.4, "pipelineDepth": 0.84, "frontEndLag": 0.0022}
COEFFICIENTS = IterationCoefficients(6.83, 0.0224, 4.36e-5, weight_read_ms=4.3)
CLIENT = {"client_offset_ms": 7.4, "pipeline_depth": 0.84, "front_end_lag": 0.0022}


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


def test_who_comes_second_waits_for_the_pipeline_and_the_front_end() -> None:
    two = Requests(np.array([64, 64]), np.array([100, 100]), np.array([0.0, 50.0]))
    plain = simulate(two, COEFFICIENTS, Limits(8, 8192))
    seen = simulate(two, COEFFICIENTS._replace(**CLIENT), Limits(8, 8192))
    later = seen.ttft_ms - plain.ttft_ms
    assert later[0] == pytest.approx(7.4)
    assert later[1] == pytest.approx(7.4 + (0.84 + 0.0022) * plain.itl_ms[1])


def test_the_engine_itself_runs_as_without_clients() -> None:
    load = OpenLoad(8, Lengths(Kind.UNIFORM, 512, 0.5), Lengths(Kind.UNIFORM, 128, 0.5, least=1))
    requests = load.draw(500, np.random.SeedSequence(3))
    plain = simulate(requests, COEFFICIENTS, Limits(64, 8192))
    seen = simulate(requests, COEFFICIENTS._replace(**CLIENT), Limits(64, 8192))
    assert (plain.first_ms == seen.first_ms).all()
    assert (plain.last_ms == seen.last_ms).all()


def test_simulator_and_closed_form_add_the_same_to_what_users_see() -> None:
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


def test_terms_of_zero_change_nothing() -> None:
    plain, none = analyze_replicas(
        [replica(), replica(clientOffset=0, pipelineDepth=0, frontEndLag=0)], [20, 20]
    )
    assert plain == none


@pytest.mark.parametrize("term", SEEN)
def test_the_reference_s_queue_refuses_each_of_them(term: str) -> None:
    with pytest.raises(SpecError, match="full iteration latency model; set queueModel to 'continuous'"):
        validated(
            Replica,
            {
                "perfParms": {"alpha": 7, term: 1},
                "queueModel": "reference",
                "maxBatch": 8,
                "inTokens": 1,
                "outTokens": 2,
            },
            "",
        )
