"""One replica simulated beside the figures of its queue model."""

import json
import math
from pathlib import Path

import pytest

from optimizer.cli.main import main
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.kinds.rows import OverloadedReplica
from optimizer.kinds.simulated import ReplicaSimulation, simulate_replica
from optimizer.simulation.replicas import Effort

ROW = {
    "maxBatchSize": 64,
    "avgInputTokens": 500,
    "avgOutputTokens": 100,
    "alpha": 6.8,
    "beta": 0.02,
    "RPS": 10,
}


@pytest.fixture
def replica() -> Replica:
    law = {"alpha": 6.8, "beta": 0.02, "gamma": 3e-5, "weightRead": 4}
    shape = {"maxBatch": 64, "inTokens": 500, "outTokens": 100}
    return Replica.model_validate({"perfParms": law, "queueModel": "continuous", **shape})


def test_closed_form_and_simulation_agree_below_saturation(replica: Replica) -> None:
    """Two ways to the same figures that share nothing but the law; the simulation's interval is 1 to 3 %."""
    (closed,) = analyze_replicas([replica], [15.0])
    found = simulate_replica(replica, 15.0, Effort(requests=40_000))
    assert isinstance(found, ReplicaSimulation)
    assert closed.ttft_ms == pytest.approx(found.ttft_ms, rel=0.06)
    assert closed.itl_ms == pytest.approx(found.itl_ms, rel=0.02)
    assert closed.response_ms == pytest.approx(found.e2e_ms, rel=0.05)
    assert closed.ttft_percentiles is not None
    assert closed.ttft_percentiles.p95_ms == pytest.approx(found.p95_ttft_ms, rel=0.1)
    assert 0 < found.half_width.ttft_ms < 0.05 * found.ttft_ms


def test_both_say_where_there_is_no_steady_state(replica: Replica) -> None:
    (closed,) = analyze_replicas([replica], [60.0])
    assert closed.stable_rate_rps < 60
    found = simulate_replica(replica, 60.0, Effort())
    assert isinstance(found, OverloadedReplica)
    assert "grows without bound" in found.overload


def test_bad_rows_do_not_stop_the_simulation_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [ROW, ROW | {"weightRead": 4}, ROW | {"queueModel": "continuous", "RPS": 500}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["analyze", "--batch", str(path), "--simulate", "--requests", "5000"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["simulated"]["avgITL"] == pytest.approx(first["avgITL"], rel=0.03)
    assert set(first["simulated"]["halfWidth"]) == set(first["simulated"]) - {"halfWidth", "requests", "seed"}
    assert "set queueModel to 'continuous'" in second["message"]
    assert "no steady state" in third["message"]
    assert "overload" in third["simulated"]


def test_the_effort_without_a_simulation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--batch", "-", "--seed", "3"]) == 2
    assert capsys.readouterr().err.endswith("--seed: nothing is simulated; add --simulate, or remove it\n")


def test_cache_use_of_requests_spreads_itl() -> None:
    """Where reading the cache weighs, lengths count as much as the number of requests: 26 % of the p95."""
    law = {"alpha": 25.46, "beta": 0.0469, "gamma": 0.00829}
    shape = {"maxBatch": 256, "inTokens": 4096, "outTokens": 128}
    made = Replica.model_validate({"perfParms": law, "queueModel": "continuous", **shape})
    found = simulate_replica(made, 0.0823, Effort(200_000))
    (closed,) = analyze_replicas([made], [0.0823])
    assert isinstance(found, ReplicaSimulation)
    assert closed.itl_percentiles is not None
    assert closed.itl_percentiles.p95_ms == pytest.approx(found.p95_itl_ms, rel=0.08)


def test_lognormal_outputs_give_lognormal_e2e_latency() -> None:
    law = {"alpha": 10.0, "beta": 1e-6, "gamma": 1e-9}
    shape = {"maxBatch": 64, "inTokens": 1, "outTokens": 400}
    made = Replica.model_validate({"perfParms": law, "queueModel": "continuous", **shape})
    (closed,) = analyze_replicas([made], [0.001])
    assert closed.e2e_percentiles is not None
    deviation = math.log(2) ** 0.5  # of the logarithm, where the coefficient of variation is 1
    for share, normal in ((0.5, 0.0), (0.95, 1.6448536), (0.99, 2.3263479)):
        value = getattr(closed.e2e_percentiles, f"p{100 * share:.0f}_ms")
        assert value / closed.response_ms == pytest.approx(math.exp(normal * deviation) / 2**0.5, rel=0.01)
