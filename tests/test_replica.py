"""One replica, or many at a time: documents in, documents out, both laws."""

import math

import numpy as np
import pytest
from pydantic import ValidationError
from queue_oracles import Iteration, Linear, Machine

from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import (
    LatencyTargets,
    Replica,
    ReplicaPerformance,
    ReplicaSizing,
    analyze_replicas,
    size_replicas,
)
from optimizer.timing import BatchParms, DecodeParms, PerfParms, PrefillParms

LINEAR = Machine(Linear(20, 0.5, 50, 0.02, 512, 200), 16, 160)
ITERATION = Machine(Iteration(12, 0.05, 0.0005, 128, 512), 48, 128)  # the reference's own example, recorded


def replica(machine: Machine) -> Replica:
    law = machine.law
    if isinstance(law, Iteration):
        times = PerfParms(base_ms=law.alpha, compute_per_token_ms=law.beta, kv_read_per_token_ms=law.gamma)
        return Replica(
            max_batch=machine.batch,
            max_queue=machine.queue,
            in_tokens=float(law.tokens_in),
            out_tokens=float(law.tokens_out),
            iteration=times,
            max_num_tokens=law.budget,
            queue_model="reference",
        )
    return Replica(
        max_batch=machine.batch,
        max_queue=machine.queue,
        in_tokens=float(law.tokens_in),
        out_tokens=float(law.tokens_out),
        decode=DecodeParms(base_ms=law.alpha, per_request_ms=law.beta),
        prefill=PrefillParms(base_ms=law.gamma, per_token_ms=law.delta),
    )


def sized(machine: Machine, ttft: float = 0.0, itl: float = 0.0, *, tps: bool = False) -> ReplicaSizing:
    (answer,) = size_replicas([replica(machine)], [LatencyTargets(ttft_ms=ttft, itl_ms=itl, tps=tps)])
    assert isinstance(answer, ReplicaSizing)
    return answer


# --- analysis ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 1.0, 2.5, 50.0])
@pytest.mark.parametrize("machine", [LINEAR, ITERATION], ids=["linear", "iteration"])
def test_replica_metrics_match_a_walk_over_states(machine: Machine, rate: float) -> None:
    (found,) = analyze_replicas([replica(machine)], [rate])
    seen = machine.see(rate)
    assert found.offered_rps == rate
    assert found.throughput_rps == pytest.approx(seen.throughput, rel=1e-9)
    assert found.stable_rate_rps == pytest.approx(machine.stable(), rel=1e-12)
    assert found.ttft_ms == pytest.approx(seen.ttft, rel=1e-9)
    assert found.itl_ms == pytest.approx(seen.itl, rel=1e-9)
    assert found.wait_ms == pytest.approx(seen.wait, rel=1e-8, abs=1e-9)
    assert found.prefill_ms == pytest.approx(seen.prefill, rel=1e-9)
    assert found.service_ms == pytest.approx(seen.service, rel=1e-9)
    assert found.response_ms == pytest.approx(seen.wait + seen.service, rel=1e-9)
    assert found.in_service == pytest.approx(seen.in_service, rel=1e-9)
    assert found.in_queue == pytest.approx(seen.wait * seen.throughput / 1000, rel=1e-8, abs=1e-12)
    assert found.utilization == pytest.approx(seen.in_service / machine.batch, rel=1e-9)
    assert found.loss == pytest.approx(1 - seen.throughput / rate, abs=1e-10)
    assert 0 <= found.p_empty <= 1


def test_replicas_of_both_laws_are_analysed_in_the_order_given() -> None:
    machines = [LINEAR, ITERATION, ITERATION, LINEAR, ITERATION]
    rates = [1.0, 2.0, 3.0, 4.0, 0.5]
    together = analyze_replicas([replica(one) for one in machines], rates)
    alone = [analyze_replicas([replica(one)], [r])[0] for one, r in zip(machines, rates, strict=True)]
    assert together == alone


def test_the_room_to_wait_is_ten_batches_where_none_is_stated() -> None:
    given = replica(LINEAR)
    open_ended = Replica.model_validate(given.model_dump(by_alias=True) | {"maxQueue": None})
    assert open_ended.max_queue is None
    assert analyze_replicas([open_ended], [2.0]) == analyze_replicas([given], [2.0])  # 160 = 10 × 16
    none = Replica.model_validate(given.model_dump(by_alias=True) | {"maxQueue": 0})
    (found,) = analyze_replicas([none], [2.0])
    assert found.in_queue == 0
    assert found.loss > 1e-4


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_an_error_that_says_so(rate: float) -> None:
    with pytest.raises(AnalysisError, match=r"^rate: must be (more than 0 requests/s|finite), not "):
        analyze_replicas([replica(LINEAR), replica(LINEAR)], [1.0, rate])


@pytest.mark.parametrize(("replicas", "given"), [(1, 2), (2, 1), (0, 1), (1, 0)])
def test_mismatched_counts_of_rates_or_targets_are_rejected(replicas: int, given: int) -> None:
    machines = [replica(LINEAR)] * replicas
    number = "1 replica" if replicas == 1 else f"{replicas} replicas"
    with pytest.raises(AnalysisError, match=rf"^rates: {given} for {number}; [^\n]*$"):
        analyze_replicas(machines, [1.0] * given)
    with pytest.raises(AnalysisError, match=rf"^targets: {given} for {number}; [^\n]*$"):
        size_replicas(machines, [LatencyTargets()] * given)


def test_a_request_that_takes_no_time_is_an_error() -> None:
    nothing = replica(Machine(Linear(20, 0.5, 50, 0.02, 0, 1), 4, 8))
    message = "the service time of a request is zero"
    with pytest.raises(AnalysisError, match=message):
        analyze_replicas([nothing], [1.0])
    with pytest.raises(AnalysisError, match=message):
        size_replicas([replica(ITERATION), nothing], [LatencyTargets(), LatencyTargets()])


# --- sizing -----------------------------------------------------------------------------------------------


def test_sizing_matches_the_newest_reference_example() -> None:
    found = sized(ITERATION, 60.0, 20.0)
    assert found.max_rate_rps == pytest.approx(2.9494622, rel=2e-6)  # the reference's own example, recorded
    assert found.rate_ttft_rps == pytest.approx(2.9494622, rel=2e-6)  # the same; the search of the
    assert found.rate_itl_rps == pytest.approx(2.971982, rel=2e-6)  # reference ends at 1e-6 relative
    assert found.at_max_rate.stable_rate_rps == pytest.approx(3.8609295, rel=1e-7)
    assert found.at_max_rate.ttft_ms == pytest.approx(60, rel=1e-8)
    assert found.at_max_rate.itl_ms < 20


def test_the_performance_of_a_sizing_is_that_at_its_rate() -> None:
    found = sized(LINEAR, 400.0, 26.0)
    (there,) = analyze_replicas([replica(LINEAR)], [found.max_rate_rps])
    assert found.at_max_rate == there
    assert LINEAR.meets(found.max_rate_rps, 400, 26, slack=1e-8)


def test_mixed_replicas_are_sized_in_order_with_single_errors() -> None:
    machines = [LINEAR, ITERATION, LINEAR, ITERATION]
    targets = [(0.0, 26.0), (60.0, 20.0), (0.0, 20.0), (10.0, 5.0)]
    answers = size_replicas(
        [replica(one) for one in machines],
        [LatencyTargets(ttft_ms=ttft, itl_ms=itl) for ttft, itl in targets],
    )
    for machine, (ttft, itl), answer in zip(machines, targets, answers, strict=True):
        expected = machine.largest_rate(ttft, itl)
        if expected is None:
            assert isinstance(answer, AnalysisError)
        else:
            assert isinstance(answer, ReplicaSizing)
            assert answer.max_rate_rps == pytest.approx(expected, rel=1e-7)
    assert [isinstance(answer, AnalysisError) for answer in answers] == [False, False, True, True]
    # At the least rate there is a share of 0.001 of a second request, so the best is just above batch 1.
    assert str(answers[2]) == (
        "no rate meets the targets: the best ITL at batch 1 is 20.5 ms, target 20 ms; "
        "relax the target or use faster token times"
    )
    assert "the best TTFT at batch 1 is " in str(answers[3])
    assert " and the best ITL at batch 1 is " in str(answers[3])


# --- documents --------------------------------------------------------------------------------------------


def test_a_replica_has_exactly_one_law() -> None:
    base = {"maxBatch": 4, "inTokens": 10, "outTokens": 10}
    decode, iteration = {"decodeParms": {"alpha": 1}}, {"perfParms": {"alpha": 1}}
    for bad in (base, base | decode | iteration, base | iteration | {"prefillParms": {}}):
        with pytest.raises(ValidationError, match="give either decodeParms and prefillParms"):
            Replica.model_validate(bad)
    assert Replica.model_validate(base | decode).prefill is None
    (found,) = analyze_replicas([Replica.model_validate(base | decode)], [1.0])
    assert found.prefill_ms == 0
    assert found.itl_ms == pytest.approx(1)


@pytest.mark.parametrize(
    "change",
    [
        {"maxBatch": 0},
        {"maxBatch": 1_000_001},
        {"maxQueue": -1},
        {"outTokens": 0},
        {"outTokens": 0.5},
        {"inTokens": -1},
        {"inTokens": math.nan},
        {"maxNumTokens": 0},
        {"unknown": 1},
    ],
)
def test_a_replica_out_of_range_is_refused(change: dict[str, float]) -> None:
    good = {"maxBatch": 4, "inTokens": 10, "outTokens": 10, "perfParms": {"alpha": 1}}
    assert Replica.model_validate(good).max_batch == 4
    with pytest.raises(ValidationError):
        Replica.model_validate(good | change)


def test_answers_are_finite_plain_numbers_under_their_wire_names() -> None:
    (found,) = analyze_replicas([replica(ITERATION)], [1e9])
    values = found.model_dump(by_alias=True)
    means = {
        field.alias or name for name, field in ReplicaPerformance.model_fields.items() if field.is_required()
    }
    assert set(values) == means
    assert {"offeredRate", "throughput", "ttft", "itl", "loss"} <= set(values)
    assert all(type(value) is float and np.isfinite(value) for value in values.values())


def test_percentiles_need_a_queue_model_that_has_them() -> None:
    late = LatencyTargets(ttft_ms=300, percentile=95)
    refused, sized = size_replicas([replica(LINEAR)] * 2, [late, LatencyTargets(ttft_ms=300)])
    assert str(refused).startswith(
        "percentile: 95 is a percentile, but the queue model 'reference' computes means only; remove it"
    )
    assert "give perfParms (queueModel 'continuous') instead of decodeParms/prefillParms" in str(refused)
    assert sized == size_replicas([replica(LINEAR)], [LatencyTargets(ttft_ms=300)])[0]
    assert isinstance(size_replicas([replica(LINEAR)], [LatencyTargets(percentile=95)])[0], ReplicaSizing)


@pytest.mark.parametrize("percentile", [None, 95])
def test_a_batch_server_can_have_targets_of_tokens(percentile: float | None) -> None:
    server = Replica(max_batch=16, in_tokens=0.0, out_tokens=1.0, batch=BatchParms(base_ms=3))
    wanted = LatencyTargets(ttft_ms=300, itl_ms=40, percentile=percentile)
    (sized,) = size_replicas([server], [wanted])
    assert isinstance(sized, ReplicaSizing)
    (missed,) = size_replicas([server], [LatencyTargets(ttft_ms=1, percentile=percentile)])
    assert "the best" in str(missed)
