"""Cycles of the loop on a simulated fleet: steps of load, failures of the source, repetition."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_fleet import DISCOVERY, SimulatedFleet, between, chat_system, poisson
from slow_cases import mostly_slow, seeds

from optimizer import solve
from optimizer.candidates.caution import slower
from optimizer.errors import SolverError, SpecError
from optimizer.spec.system import System
from optimizer.stabilisation.rules import Rules
from rest_server.loop.config import DriftSettings, LoopConfig
from rest_server.loop.controller import Controller
from rest_server.loop.drift import DriftMemory, RefitMemory, TimeRatio
from rest_server.loop.kubernetes import ClusterError
from rest_server.loop.loads import EstimatedLoad, with_measured_loads
from rest_server.loop.records import repeated
from rest_server.loop.scrape import ScrapeReader
from rest_server.loop.state_file import StateFile
from rest_server.loop.window import Hold, HoldReason

PERIOD_S = 15
CONFIG = LoopConfig.model_validate(
    {
        "system": "fleet",
        "source": {"kind": "scrape", "url": DISCOVERY},
        "period": PERIOD_S,
        "startup": 30,
    }
)


def slowed(factor: float) -> System:
    system = chat_system()
    return system.with_items(*(slower(profile, factor) for profile in system.profiles.values()))


class Loop:
    """A controller and its fleet on one clock."""

    def __init__(
        self, config: LoopConfig = CONFIG, replicas: int = 2, slowdown: float = 1.0, **options: Any
    ) -> None:
        self.fleet = SimulatedFleet(slowed(slowdown), replicas, startup_s=30.0)
        self.records: list[dict[str, Any]] = []
        self.config = config
        self.options = options
        self.controller = self.started()

    def started(self) -> Controller:
        reader = ScrapeReader(self.fleet.fetch, DISCOVERY, self.config.window_s)
        return Controller(chat_system(), self.config, reader, self.fleet, self.records.append, **self.options)

    def run(
        self, rate_rps: Callable[[float], float], end_s: int, begin_s: int = 0, seed: int = 3
    ) -> list[dict[str, Any]]:
        """Run cycles; return their records."""
        jobs, before = poisson(rate_rps, end_s, np.random.default_rng(seed), 30), len(self.records)
        for now_s in range(begin_s, end_s + 1, PERIOD_S):
            self.fleet.advance(now_s, between(jobs, now_s - PERIOD_S, now_s))
            self.controller.cycle(float(now_s))
        return self.records[before:]


def workload(record: dict[str, Any]) -> dict[str, Any]:
    (found,) = record["workloads"]
    assert isinstance(found, dict)
    return found


def planned_at(rate_rps: float) -> int:
    """Return the replicas of a plan for a known load."""
    load = EstimatedLoad(
        rate_rps, rate_rps, 0.0, in_tokens=60.0, out_tokens=30.0, in_tokens_cv=0.5, out_tokens_cv=1.0
    )
    plan = solve(with_measured_loads(chat_system(), {"talk": load}, variation=True))
    return sum(pool.num_replicas for pool in plan.allocations["talk"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow((3, 1, 2, 4, 5), 1))
def test_a_step_gets_the_plan_of_its_rate_and_its_queue_drains(seed: int) -> None:
    """Six times the load from 150 s; the plan after the window of 60 s and two periods, until the end."""
    loop = Loop()
    records = loop.run(lambda t: 3 if t < 150 else 18, 450, seed=seed)
    assert {workload(record)["replicas"] for record in records[5:10]} <= {1, 2}
    filled = records[(150 + 60) // PERIOD_S]
    assert filled["loads"]["talk"]["offered_rps"] == pytest.approx(18, rel=0.15)
    assert workload(filled)["replicas"] >= 5
    assert workload(filled)["result"] in {"scaled", ""}
    last = records[-1]["loads"]["talk"]
    assert last["waiting"] < 20
    assert last["offered_rps"] == pytest.approx(18, rel=0.15)
    true, later = planned_at(18.0), records[(150 + 60 + 2 * PERIOD_S) // PERIOD_S :]
    assert true == 5
    for record in later:
        assert abs(record["planned"]["talk"]["for_rate"] - true) <= 1
        assert abs(sum(record["planned"]["talk"].values()) - true) <= 1
    extra = [record["planned"]["talk"]["for_backlog"] for record in records[4:]]
    waiting = [record["loads"]["talk"]["waiting"] for record in records[4:]]
    assert max(extra) >= 1  # while the queue is drained
    assert not any(number for number, queued in zip(extra, waiting, strict=True) if queued < 4)
    drained_s = next(record["inputs"]["now_s"] for record in later if record["loads"]["talk"]["waiting"] < 20)
    assert drained_s - 150 <= 180
    assert not loop.fleet.rejected


@pytest.mark.slow
def test_replicas_are_held_until_the_window_is_full() -> None:
    records = Loop(replicas=7).run(lambda _: 2, 30)
    assert {workload(record)["reason"] for record in records} == {"WindowNotFull"}
    assert {workload(record)["replicas"] for record in records} == {7}


NUMBER = "vllm:num_requests_waiting{"


def nan(text: str) -> str:
    return "\n".join(
        f"{line.split(' ')[0]} NaN" if line.startswith(NUMBER) else line for line in text.splitlines()
    )


FAILURES: dict[str, Callable[[SimulatedFleet], object]] = {
    "SourceDown": lambda fleet: fleet.failing.add("fleet"),
    "Stale": lambda fleet: fleet.failing.update(one.address for one in fleet.replicas),
    "Partial": lambda fleet: fleet.failing.update(one.address for one in fleet.replicas[::2]),
    "NotANumber": lambda fleet: setattr(fleet, "broken", nan),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", mostly_slow(FAILURES, 2))
def test_a_failing_source_holds_replicas_with_a_reason(reason: str) -> None:
    loop = Loop(replicas=4)
    loop.run(lambda _: 12, 90)
    there = loop.fleet.desired
    assert there >= 3
    FAILURES[reason](loop.fleet)
    records = loop.run(lambda _: 0, 300, 105)
    assert {workload(record)["replicas"] for record in records} == {there}
    silent = records[2:] if reason == "Partial" else records  # two reads of a replica may fail
    assert {workload(record)["reason"] for record in silent} == {reason}
    assert all(record["holds"]["talk"].startswith(reason) for record in silent)
    assert loop.fleet.desired == there


@pytest.mark.slow
def test_a_metric_that_is_no_number_can_be_recorded(tmp_path: Path) -> None:
    loop = Loop(replicas=4)
    loop.run(lambda _: 12, 90)
    loop.fleet.broken = nan
    held = loop.run(lambda _: 12, 120, 105)
    assert {workload(record)["reason"] for record in held} == {"NotANumber"}
    path = written(loop.records, tmp_path / "records.jsonl")
    assert not any(differences for _, differences in repeated(chat_system(), CONFIG, path))


@pytest.mark.slow
def test_a_few_silent_replicas_are_extrapolated() -> None:
    loop = Loop(CONFIG.model_copy(update={"coverage": 0.7}), replicas=5)
    loop.run(lambda _: 16, 150)
    rates = []
    for now_s in range(165, 390, PERIOD_S):
        loop.fleet.failing = {loop.fleet.ready[0].address}
        (record,) = loop.run(lambda _: 16, now_s, now_s)
        rates.append(record["loads"]["talk"]["offered_rps"])
    assert np.mean(rates) == pytest.approx(16, rel=0.1)


@pytest.mark.slow
def test_no_traffic_never_takes_the_last_replica() -> None:
    records = Loop(replicas=3).run(lambda _: 0, 900)
    assert workload(records[-1])["replicas"] == 1
    to_zero = CONFIG.model_copy(update={"scale_to_zero": True})
    records = Loop(to_zero, replicas=3).run(lambda _: 0, 900)
    assert (workload(records[-1])["replicas"], workload(records[-1])["reason"]) == (0, "Idle")


@pytest.mark.slow
def test_without_a_forecast_the_measured_rate_is_planned() -> None:
    config = LoopConfig.model_validate(CONFIG.model_dump(by_alias=True) | {"forecast": "none"})
    record = Loop(config).run(lambda t: 2 + t / 30, 150)[-1]
    assert "forecast_rps" not in record["loads"]["talk"]
    assert Loop().run(lambda t: 2 + t / 30, 150)[-1]["loads"]["talk"]["forecast_rps"] > 0


def test_a_server_without_replicas_starts_by_its_document() -> None:
    records = Loop(replicas=0).run(lambda _: 2, 15)
    assert workload(records[0])["replicas"] == 1


@pytest.mark.slow
def test_unreadable_workloads_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(replicas=3)
    loop.run(lambda _: 9, 150)
    hold = Hold(HoldReason.replicas_unknown, "the API server does not answer")
    monkeypatch.setattr(loop.fleet, "read", lambda: ({}, {"talk": hold}))
    (record,) = loop.run(lambda _: 9, 165, 165)
    assert record["workloads"] == []
    assert record["holds"]["talk"].startswith("ReplicasUnknown: the API server")


@pytest.mark.slow
def test_a_failing_solver_holds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(replicas=3)
    loop.run(lambda _: 9, 150)
    there = loop.fleet.desired

    def fail(*_: object) -> None:
        raise SolverError("the solver failed")

    monkeypatch.setattr("rest_server.loop.deciding.plan_next", fail)
    (record,) = loop.run(lambda _: 25, 165, 165)
    assert (workload(record)["reason"], record["plan"]) == ("PlanFailed", None)
    assert loop.fleet.desired == there


@pytest.mark.slow
def test_a_refusal_is_recorded_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(replicas=1)
    scale = loop.fleet.scale

    def refuse(*_: object) -> None:
        raise ClusterError("409 Conflict: owned by hpa", 409)

    monkeypatch.setattr(loop.fleet, "scale", refuse)
    records = loop.run(lambda _: 12, 90)
    assert workload(records[-1])["result"] == "409 Conflict: owned by hpa"
    assert loop.fleet.desired == 1
    monkeypatch.setattr(loop.fleet, "scale", scale)
    loop.run(lambda _: 12, 120, 105)
    assert loop.fleet.desired >= 3


@pytest.mark.slow
@pytest.mark.parametrize("lease", ["before", "during"])
def test_without_the_lease_nothing_is_scaled(lease: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(replicas=1)
    if lease == "before":
        monkeypatch.setattr(loop.fleet, "may_act", lambda: "lease loop: held by other")
    else:
        monkeypatch.setattr(SimulatedFleet, "has_lease", property(lambda _: False))
    records = loop.run(lambda _: 12, 120)
    assert "lease" in workload(records[-1])["result"]
    assert loop.fleet.desired == 1


@pytest.mark.slow
def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json", read_only=True)
    loop = Loop(replicas=1, dry_run=True, state_file=state)
    records = loop.run(lambda _: 12, 120)
    assert workload(records[-1])["result"] == "dry run"
    assert loop.fleet.desired == 1
    assert not (tmp_path / "state.json").exists()


# --- state and repetition ------------------------------------------------------------------------------


def written(records: list[dict[str, Any]], path: Path) -> Path:
    path.write_text("".join(f"{json.dumps(record, allow_nan=False)}\n" for record in records))
    return path


@pytest.mark.slow
def test_recorded_cycles_repeat_exactly(tmp_path: Path) -> None:
    loop = Loop()
    loop.run(lambda t: 3 if t < 150 else 14, 300)
    loop.fleet.failing.add("fleet")
    loop.run(lambda _: 3, 330, 315)
    path = written(loop.records, tmp_path / "records.jsonl")
    found = list(repeated(chat_system(), CONFIG, path))
    assert len(found) == len(loop.records)
    assert not [differences for _, differences in found if differences]
    other = CONFIG.model_copy(update={"rules": Rules(), "late_cost": 0.0})
    assert any(differences for _, differences in repeated(chat_system(), other, path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_loop_that_is_killed_continues_where_it_stopped(tmp_path: Path, seed: int) -> None:
    rng, path = np.random.default_rng(seed), tmp_path / "state.json"
    loop = Loop(replicas=3, state_file=StateFile(path))
    at_s = 0
    for _ in range(4):
        end_s = at_s + PERIOD_S * int(rng.integers(3, 12))
        for record in loop.run(lambda _: 11, end_s, at_s, seed):
            assert workload(record)["replicas"] >= 2
        at_s = end_s + PERIOD_S * int(rng.integers(1, 4))
        loop.options["state_file"].close()
        loop.options["state_file"] = StateFile(path)
        loop.controller = loop.started()
    decisions = StateFile(path, read_only=True).state.decisions
    assert decisions is not None
    assert decisions.servers["talk"].replicas["GPU"] == loop.fleet.desired
    written(loop.records, tmp_path / "records.jsonl")
    assert not any(bad for _, bad in repeated(chat_system(), CONFIG, tmp_path / "records.jsonl"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('{"version": 9}', "version 9; this program reads 3"),
        ('{"version": 3, "loads": 3}', "loads: .*remove the file to start anew"),
    ],
)
def test_a_broken_state_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        StateFile(path)


INPUTS = '{"state": {"version": 3}, "inputs": {"now_s": 1, "readings": {}, "replicas": {}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('{"inputs": {}}', "it has no state"),
        ('{"state": 3}', "state: Input should be a valid dictionary"),
        ('{"state": {"version": 3}}', "inputs: "),
        ('{"state": {"version": 3}, "inputs": {"now_s": "x"}}', r"inputs: now_s: [^\n]*$"),
        (INPUTS + "}", "workloads: "),
        (INPUTS + ', "workloads": [{}]}', "workloads: 0.server: Field required"),
    ],
)
def test_a_broken_record_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        list(repeated(chat_system(), CONFIG, path))


def test_infinite_bounds_survive_the_state(tmp_path: Path) -> None:
    loop = Loop(state_file=StateFile(tmp_path / "state.json"))
    loop.run(lambda _: 6, 90)
    counts = StateFile(tmp_path / "state.json", read_only=True).state.loads["talk"].lengths.counts
    assert math.inf in counts.prompt_buckets
    assert counts.prompts > 100


# --- drift ---------------------------------------------------------------------------------------------

PROFILE = "chat/GPU"


def drift_of(record: dict[str, Any]) -> dict[str, Any]:
    found = record["drift"].get(PROFILE, {"alarm": False, "ratio": None, "proposed": None})
    assert isinstance(found, dict)
    return found


def refuse(*_: object) -> None:
    raise ClusterError("403 Forbidden: events", 403)


@pytest.mark.slow
def test_drift_alarms_within_four_minutes_and_calm_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is refused is recorded and harmless."""
    loop = Loop(replicas=3)
    calm = loop.run(lambda _: 8, 600)
    assert not any(drift_of(record)["alarm"] for record in calm)
    assert drift_of(calm[-1])["ratio"] == pytest.approx(1.0, abs=0.06)
    assert loop.fleet.events == []
    for factor in (1.2, 1 / 1.2):
        loop = Loop(replicas=3, slowdown=factor)
        if factor < 1:
            monkeypatch.setattr(loop.fleet, "announce", refuse)
        records = loop.run(lambda _: 8, 240)
        assert drift_of(records[-1])["alarm"]
        proposed = drift_of(records[-1])["proposed"]
        assert proposed == {
            name: pytest.approx(factor, rel=0.06) for name in ("perfParms.alpha", "perfParms.beta")
        }
        results = [event["result"] for record in records for event in record["events"]]
        if factor > 1:
            ((reason, message),) = loop.fleet.events  # one, at the start of the alarm
            assert reason == "ProfileDrift"
            assert "chat/GPU: token time × " in message
        assert results == ["created" if factor > 1 else "403 Forbidden: events"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7, 12))
def test_a_calm_day_gives_no_alarm(seed: int) -> None:
    """A day of 1 to 6 requests/s, one cycle a minute; ratios from 0.909 to 1.008."""
    loop, step_s, day_s = Loop(replicas=2), 60, 86_400
    jobs = poisson(
        lambda t: 3.5 - 2.5 * math.cos(2 * math.pi * t / day_s), day_s, np.random.default_rng(seed), 7
    )
    ratios, place = [], 0
    for now_s in range(0, day_s + 1, step_s):
        end = place
        while end < len(jobs) and jobs[end].arrival_ms < 1000 * now_s:
            end += 1
        loop.fleet.advance(now_s, jobs[place:end])
        record, place = loop.controller.cycle(float(now_s)), end
        assert not drift_of(record)["alarm"]
        ratios.append(drift_of(record)["ratio"])
    known = [ratio for ratio in ratios if ratio is not None]
    print(f"{len(known)} of {len(ratios)} cycles; ratios {min(known):.3f} to {max(known):.3f}")
    assert len(known) > 1200
    assert loop.fleet.events == []


@pytest.mark.slow
def test_a_refit_is_applied_only_on_request() -> None:
    config = CONFIG.model_copy(update={"drift": DriftSettings(refit="apply")})
    loop = Loop(config, replicas=3, slowdown=1.3)
    loop.run(lambda _: 8, 1050)
    state = loop.controller.state
    assert state is not None
    factors = state.drifts[PROFILE].factors
    assert factors["perfParms.alpha"] == pytest.approx(1.3, rel=0.08)
    assert "perfParms.gamma" not in factors  # 0.0001 ms a token of KV cache changes no measured time
    assert not state.drifts[PROFILE].alarm
    assert {reason for reason, _ in loop.fleet.events} == {"ProfileRefit"}


def comparison(ratio: float, **sensitivities: float) -> TimeRatio:
    return TimeRatio(math.log(ratio), sensitivities)


def test_one_load_changes_informed_parameters_together() -> None:
    memory = RefitMemory().after(comparison(1.2, a=0.8, b=0.2, c=0.01), 1.0, 60.0)
    assert memory.factors == {"a": pytest.approx(1.2, rel=0.01), "b": pytest.approx(1.2, rel=0.01)}


def test_different_loads_separate_parameters() -> None:
    """The first parameter is 20 % larger, the second as stated; a third informs nothing."""
    memory = RefitMemory()
    for k in range(20):
        share = 0.9 if k % 2 else 0.3
        memory = memory.after(comparison(1.2**share, a=share, b=1 - share, c=0.0), 0.95, 30.0)
    assert memory.factors["a"] == pytest.approx(1.2, rel=0.03)
    assert memory.factors["b"] == pytest.approx(1.0, abs=0.03)
    assert "c" not in memory.factors


def test_a_step_of_a_refit_is_bounded() -> None:
    memory = RefitMemory().after(comparison(3.0, a=1.0), 1.0, 60.0)
    assert memory.factors == {"a": pytest.approx(1.25)}
    assert RefitMemory().factors == {}
    assert RefitMemory().after(comparison(1.2, a=0.0), 1.0, 60.0).factors == {}


def test_longer_prefill_alone_is_an_alarm_of_the_ttft() -> None:
    """TTFT twice as long at unchanged token times: the parameters of the prefill change, the others stay."""
    memory, settings = DriftMemory(), DriftSettings()
    itl = comparison(1.0, decode=1.0, prefill=0.0)
    ttft = comparison(2.0, decode=0.05, prefill=0.95)
    for k in range(30):
        memory = memory.after(itl, ttft, (2000.0, 30.0, 15.0), 15.0 * k, settings)
    assert memory.alarm
    assert memory.ratio == pytest.approx(1.0)
    assert memory.ttft_ratio == pytest.approx(2.0)
    assert memory.proposal is not None
    assert memory.proposal["prefill"] == pytest.approx(1.25)
    assert memory.proposal["decode"] == pytest.approx(1.0, abs=0.03)
