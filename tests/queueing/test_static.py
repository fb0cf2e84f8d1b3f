"""Static batches: against simulations of others, closed forms, and the project's own engine."""

from typing import Any

import numpy as np
import pytest

from optimizer import explain, load_system, solve, verify
from optimizer.compat.row_types import kind_of_row
from optimizer.compat.rows import LinearRow
from optimizer.errors import SpecError
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.kinds.simulated import ReplicaSimulation, simulate_replica
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.timing.law import RequestShapes
from optimizer.timing.static import StaticLaw

# Of the reference's workloads_static.json, lognormal lengths of 100 tokens on average: CV, batch, α, β, γ, δ,
# prompt; throughput of continuous over static batches, rows leaving and padded, simulated there.
SIMULATED = [
    (0.0, 32, 8.0, 0.08, 5.0, 0.05, 200, 0.899, 0.899),
    (0.5, 8, 8.0, 0.4, 5.0, 0.1, 500, 1.404, 1.575),
    (1.0, 32, 20.0, 0.0, 0.0, 0.0, 0, 4.402, 4.402),
    (1.0, 32, 8.0, 0.4, 5.0, 0.1, 500, 1.665, 2.793),
    (2.0, 32, 8.0, 0.08, 5.0, 0.05, 200, 4.500, 5.652),
]
STEPS = 100
DECODE = {"alpha": 8, "beta": 0.08}
PREFILL = {"gamma": 5, "delta": 0.05}


@pytest.mark.parametrize("row", SIMULATED, ids=lambda row: f"cv {row[0]:g} batch {row[1]}")
def test_static_batch_times_match_the_reference_simulation(row: tuple[float, ...]) -> None:
    cv, batch, alpha, beta, gamma, delta, prompt, *simulated = row
    # Continuous there: each prompt is computed on its own, and every step is of a full batch.
    continuous = batch * (gamma * (prompt > 0) + delta * prompt) + (alpha + beta * batch) * STEPS
    shapes = RequestShapes(np.array([prompt]), np.array([STEPS + 1.0]), np.array([cv]))
    for padded, expected in enumerate(simulated):
        four = [[alpha], [beta], [gamma], [delta]]
        law = StaticLaw.of_rows(np.array([*four, [float(padded)]]), shapes)
        found = law.service_time_ms(np.array([float(batch)]))[0] / continuous
        assert found == pytest.approx(expected, rel=0.025)


def test_static_batch_of_one_matches_continuous_batching() -> None:
    law = {"decode": DECODE, "prefill": PREFILL, "in_tokens": 200.0, "out_tokens": 100.0, "max_batch": 1}
    one, other = (
        Replica.model_validate(law | {"max_queue": 30, "batching": batching, "out_tokens_cv": cv})
        for batching, cv in (("static", 0.0), ("continuous", 1.0))
    )
    static, continuous = analyze_replicas([one, other], [0.4, 0.4])
    assert static.stable_rate_rps == pytest.approx(continuous.stable_rate_rps)
    assert static.itl_ms == pytest.approx(continuous.itl_ms)
    # Constant times wait half as long as exponential ones.
    assert static.wait_ms == pytest.approx(continuous.wait_ms / 2, rel=0.01)


@pytest.mark.few(2)
@pytest.mark.parametrize("batching", ["static", "padded"])
@pytest.mark.parametrize("load", [0.1, 0.6])
def test_engine_means_match(batching: str, load: float) -> None:
    replica = Replica.model_validate(
        {"decode": DECODE, "prefill": PREFILL, "in_tokens": 200, "out_tokens": 100, "max_batch": 16}
        | {"max_queue": 500, "batching": batching, "out_tokens_cv": 0.6, "in_tokens_cv": 1}
    )
    rate_rps = load * analyze_replicas([replica], [1.0])[0].stable_rate_rps
    found = analyze_replicas([replica], [rate_rps])[0]
    simulated = simulate_replica(replica, rate_rps, Effort(requests=60_000))
    assert isinstance(simulated, ReplicaSimulation)
    assert found.ttft_ms == pytest.approx(simulated.ttft_ms, rel=0.06)
    assert found.itl_ms == pytest.approx(simulated.itl_ms, rel=0.04)
    assert found.response_ms == pytest.approx(simulated.e2e_ms, rel=0.05)


def system_of(batching: str, **load: Any) -> System:
    profile = {"name": "m", "acc": "A", "maxBatchSize": 16, "decodeParms": DECODE, "prefillParms": PREFILL}
    lengths = {"arrivalRate": 600, "avgInTokens": 200, "avgOutTokens": 100} | load
    return load_system(
        {
            "accelerators": [{"name": "A", "type": "A", "cost": 10}],
            "models": [profile | ({} if batching == "continuous" else {"batching": batching})],
            "serviceClasses": [{"name": "c", "modelTargets": [{"model": "m", "slo-ttft": 3000}]}],
            "servers": [{"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": lengths}}],
            "optimizer": {"unlimited": True},
        }
    )


@pytest.mark.slow
def test_static_and_continuous_batching_plans() -> None:
    replicas = []
    for batching in ("continuous", "static", "padded"):
        system = system_of(batching, **({} if batching == "continuous" else {"outTokensCV": 0.8}))
        plan = solve(system)
        assert verify(plan, system) == []
        replicas.append(plan.allocations["s"][0].num_replicas)
        simulated = simulate_pools(system, plan, Effort(requests=8_000)).pools[0]
        assert simulated.ttft is not None
        mean, predicted_ms = simulated.ttft.mean, plan.allocations["s"][0].ttft_ms
        assert mean.value - (mean.half_width or 0) < 1.05 * predicted_ms
    assert explain(system).servers[0].pools[0].binding
    assert replicas[0] < replicas[1] <= replicas[2]


def test_static_batching_needs_the_output_length_cv() -> None:
    with pytest.raises(SpecError, match=r"outTokensCV: missing; a static batch lasts as long as its longest"):
        system_of("static")


def test_static_batching_needs_the_linear_model() -> None:
    with pytest.raises(ValueError, match="batching: static batches take decodeParms"):
        Replica.model_validate(
            {"iteration": {"alpha": 8}, "in_tokens": 9, "out_tokens": 9, "max_batch": 2, "batching": "static"}
        )


def test_rows_support_static_batching() -> None:
    row: dict[str, Any] = {
        "RPS": 2,
        "maxBatchSize": 16,
        "avgInputTokens": 200,
        "avgOutputTokens": 100,
        "maxQueueSize": 99,
    }
    row |= {"decodeParms": DECODE, "prefillParms": PREFILL, "targetTTFT": 2000}
    assert kind_of_row(row) is LinearRow
    continuous, static = (
        LinearRow.model_validate(row | more).size() for more in ({}, {"batching": "static", "outTokensCV": 1})
    )
    assert static.offered_rps < continuous.offered_rps
    assert LinearRow.model_validate(row).analyze().offered_rps == 2
    with pytest.raises(ValueError, match="outTokensCV: missing"):
        LinearRow.model_validate(row | {"batching": "padded"})
