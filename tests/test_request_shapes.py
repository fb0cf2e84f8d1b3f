"""Documents with request shapes: plans, verification, warnings, refusals, sweeps, traces and simulation."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run

from optimizer import Plan, SpecError, System, load_system, solve, verify
from optimizer.checking.checks import check_text
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import LatencyTargets, Replica, size_replicas
from optimizer.simulation.replicas import Effort
from optimizer.simulation.trace import read_trace
from optimizer.spec.changes import SystemChange
from optimizer.spec.trace_shapes import load_of_trace, with_traces
from optimizer.studies.simulation.repair import solve_and_repair

CHAT = {"name": "chat", "share": 0.9, "avgInTokens": 500, "avgOutTokens": 200, "outTokensCV": 0}
DOCS = {"name": "docs", "share": 0.1, "avgInTokens": 30_000, "avgOutTokens": 300, "outTokensCV": 0}
LAW = {"alpha": 7.331050698507463, "beta": 0.020968038510257643, "gamma": 4.603055311676909e-05}


def document(load: dict[str, Any], target: dict[str, Any], **server: Any) -> dict[str, Any]:
    profile = {"name": "m", "acc": "H100", "maxBatchSize": 256, "kvCapacity": 448_733, "perfParms": LAW}
    return {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 400}],
        "count": [{"type": "H100", "count": 40}],
        "models": [profile],
        "serviceClasses": [
            {"name": "c", "priority": 1, "modelTargets": [{"model": "m", "percentile": 95, **target}]}
        ],
        "servers": [{"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": load}, **server}],
    }


def system_of(tmp_path: Path, raw: dict[str, Any]) -> System:
    path = tmp_path / "system.yaml"
    path.write_text(yaml.safe_dump(raw))
    return load_system(path)


MIX = {"arrivalRate": "10/s", "shapes": [CHAT, DOCS]}
TARGET = {"slo-ttft": "2.5s", "slo-itl": "50ms"}
PREFIX = {
    "arrivalRate": "20/s", "avgInTokens": 8000, "avgOutTokens": 200, "inTokensCV": 0, "outTokensCV": 0,
    "prefixTokens": 7000, "prefixHitRate": 0.9,
}  # fmt: skip


def replicas(system: System) -> int:
    (pool,) = solve(system).allocations["s"]
    return pool.num_replicas


def test_plan_states_shapes_and_passes_verification(tmp_path: Path) -> None:
    system = system_of(tmp_path, document(MIX, TARGET))
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    assert [shape.name for shape in pool.shapes] == ["chat", "docs"]
    assert pool.shapes[1].stall_ms == pytest.approx(629, abs=1)  # four chunks beside the decodes
    assert pool.num_replicas == 2
    assert any("within 10 %" in doubt for doubt in pool.doubts)
    assert not verify(plan, system)
    wrong = pool.model_copy(update={"shapes": pool.shapes[:1]})
    assert verify(plan.model_copy(update={"allocations": {"s": (wrong,)}}), system)


@pytest.mark.slow
def test_repair_gives_the_mix_a_third_replica(tmp_path: Path) -> None:
    found = solve_and_repair(
        system_of(tmp_path, document(MIX, TARGET)), solve, Effort(requests=20_000), lambda *_: None
    )
    assert [pool.num_replicas for pool in found.plan.allocations["s"]] == [3]
    (pool,) = found.simulation.pools
    assert [(shape.name, shape.verdict) for shape in pool.shapes] == [("chat", "held"), ("docs", "held")]


def test_prefix_hits_decide_the_number_of_cards(tmp_path: Path) -> None:
    target = {"slo-ttft": "1s", "slo-itl": "50ms"}
    cards = [
        replicas(system_of(tmp_path, document({**PREFIX, **change}, target)))
        for change in ({}, {"prefixHitRate": 0}, {"prefixStored": "once"})
    ]
    assert cards == [4, 7, 3]
    (warning,) = check_text(yaml.safe_dump(document(PREFIX, target))).warnings
    assert "it needs 4 cards; without hits 7 cards are needed" in str(warning)


def test_targets_of_a_shape_hold_over_its_requests(tmp_path: Path) -> None:
    target = {**TARGET, "shapes": {"chat": {"slo-ttft": "500ms"}, "other": {"slo-ttft": "1ms"}}}
    system = system_of(tmp_path, document(MIX, target))
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    assert pool.num_replicas == 5
    (figure,) = pool.shapes[0].targets
    assert (figure.measure, figure.limit) == ("p95 TTFT of chat", 500)
    assert not verify(plan, system)


def test_one_shape_plans_as_its_means_do(tmp_path: Path) -> None:
    means = {"avgInTokens": 700, "avgOutTokens": 150, "inTokensCV": 0.5, "outTokensCV": 1.5}
    rate = {"arrivalRate": "60/s"}
    plans = [
        solve(system_of(tmp_path, document(load, TARGET))).model_dump()
        for load in (rate | means, rate | {"shapes": [{"name": "all", "share": 1, **means}]})
    ]
    pools = [plan["allocations"]["s"][0] for plan in plans]
    for key, value in pools[0].items():
        if isinstance(value, float):
            assert pools[1][key] == pytest.approx(value, rel=1e-12), key
    assert pools[0]["num_replicas"] == pools[1]["num_replicas"]


def test_a_shape_without_requests_has_no_figures(tmp_path: Path) -> None:
    load = {"arrivalRate": "10/s", "shapes": [CHAT | {"share": 1}, DOCS | {"share": 0}]}
    own = {"shapes": {"docs": {"slo-ttft": "100ms"}}}
    (pool,) = solve(system_of(tmp_path, document(load, TARGET | own))).allocations["s"]
    assert [shape.name for shape in pool.shapes] == ["chat"]
    assert "docs" not in " ".join(figure.measure for figure in pool.targets)


def test_shapes_beside_unsupported_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a shared card computes with one mean request"):
        system_of(tmp_path, document(MIX, TARGET, sharedCard=True))
    with pytest.raises(SpecError, match="avgInTokens: follows from shapes"):
        system_of(tmp_path, document({**MIX, "avgInTokens": 5}, TARGET))
    raw = copy.deepcopy(document(MIX, {"slo-ttft": "2.5s"}))
    raw["models"][0] |= {"queueModel": "reference"}
    del raw["serviceClasses"][0]["modelTargets"][0]["percentile"]
    with pytest.raises(SpecError, match="without shapes or prefixes; give mean lengths, or set queueModel"):
        system_of(tmp_path, raw)


@pytest.mark.slow
def test_rates_of_shapes_sum_to_that_of_the_load(tmp_path: Path) -> None:
    rated = [
        {key: value for key, value in shape.items() if key != "share"} | {"arrivalRate": rate}
        for shape, rate in ((CHAT, "9/s"), (DOCS, "1/s"))
    ]
    by_rate = system_of(tmp_path, document({"shapes": rated}, TARGET))
    assert by_rate.servers["s"].current.load.arrival_rate_rpm == 600
    assert solve(by_rate) == solve(system_of(tmp_path, document(MIX, TARGET)))


def test_shares_and_hits_can_be_varied(tmp_path: Path) -> None:
    system = system_of(tmp_path, document(MIX, TARGET))
    rare = SystemChange("share", "docs", "0.02").applied_to(system)
    assert [shape.share for shape in rare.servers["s"].current.load.shapes] == pytest.approx([0.98, 0.02])
    assert replicas(rare) == 1
    hits = SystemChange("hit", "s", "0").applied_to(system_of(tmp_path, document(PREFIX, TARGET)))
    assert hits.servers["s"].current.load.prefix_hit_rate == 0


TRACES = {
    "azure.csv": """\
TIMESTAMP,ContextTokens,GeneratedTokens,CachedTokens
0,100,10,0
1,110,20,0
3,9000,30,8000
""",
    "burst.csv": """\
Timestamp,Model,Request tokens,Response tokens
5,a,100,10
6,a,110,20
7,a,4,0
8,a,9000,30
""",
    "mooncake.jsonl": "\n".join(
        f'{{"timestamp": {ms}, "input_length": {x}, "output_length": {y}, "hash_ids": [0]}}'
        for ms, x, y in ((0, 100, 10), (1000, 110, 20), (3000, 9000, 30))
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces_become_shapes_by_prompt_length(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TRACES[name])
    assert read_trace(path).in_tokens.tolist() == [100, 110, 9000]
    load = load_of_trace(path, 2)
    assert load.arrival_rate_rpm == pytest.approx(40)
    short, long = load.shapes
    assert (short.in_tokens, long.in_tokens) == (105, 9000)
    assert (short.out_tokens, long.out_tokens) == (15, 30)
    assert long.prefix_tokens == (8000 if name == "azure.csv" else 0)
    with pytest.raises(SpecError, match="shapes: must be 1 to 8, not 9"):
        load_of_trace(path, 9)


@pytest.mark.slow
def test_a_trace_is_the_load_of_a_server(tmp_path: Path, run: Run) -> None:
    load = MIX | {"arrivalCV": 1.5}
    system_of(tmp_path, document(load, TARGET))
    trace, path = tmp_path / "azure.csv", tmp_path / "system.yaml"
    trace.write_text(TRACES["azure.csv"])
    traced = load_of_trace(trace, 2).model_dump(by_alias=True, exclude_unset=True) | {"arrivalCV": 1.5}
    expected = solve(load_system(document(traced, TARGET)))
    flags = "--from-trace", f"s={trace}", "--shapes", 2
    plan = Plan.model_validate_json(run("solve", path, *flags, "--json").out)
    assert (plan.allocations, plan.levels) == (expected.allocations, expected.levels)
    rate = tmp_path / "rate.csv"
    rate.write_text("server,arrivalRate\ns,5/s\n")
    faster = run("solve", path, "--from-trace", trace, "--shapes", 2, "--load", rate, "--json").out
    (pool,) = Plan.model_validate_json(faster).allocations["s"]
    assert pool.arrival_rate_rpm == 300
    assert [shape.name for shape in pool.shapes] == ["in-105", "in-9000"]
    comparison = json.loads(run("compare", path, *flags, "--json").out)
    assert comparison["second"]["plan"]["totalCostCentsPerH"] == expected.total_cost_cents_per_h
    assert (
        comparison["first"]["plan"]["totalCostCentsPerH"] > comparison["second"]["plan"]["totalCostCentsPerH"]
    )


def test_a_replica_is_sized_for_a_trace(tmp_path: Path, run: Run) -> None:
    trace = tmp_path / "azure.csv"
    trace.write_text(TRACES["azure.csv"])
    size = "size", "--target-ttft", "1s", "--json", "--from-trace", trace, "--shapes", 2
    base, compute, read = LAW.values()
    law = "--iteration-base", base, "--compute-per-token", compute, "--kv-read-per-token", read
    rows = {"perfParms": LAW, "maxBatch": 64, "shapes": load_of_trace(trace, 2).shapes}
    (expected,) = size_replicas([Replica.model_validate(rows)], [LatencyTargets(ttft_ms=1000.0)])
    assert not isinstance(expected, AnalysisError)
    answer = run(*size, *law, "--max-batch", 64)
    assert json.loads(answer.out) == json.loads(expected.to_json())
    named = json.loads(run(*size, "--model", "Llama-3.1-8B", "--accelerator", "H100").out)
    assert named["assumed"]["inTokens"] == pytest.approx((105 * 2 + 9000) / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--from-trace", "no.csv"], "no.csv: cannot be read: no such file or directory"),
        (["--from-trace", "t=TRACE"], "server 't' does not exist in the system"),
        (["--from-trace", "s="], "trace 's=': must be FILE or NAME=FILE"),
        (["--from-trace", "TRACE", "--from-trace", "s=TRACE"], "server 's' has a trace already"),
        (["--shapes", "3"], "--shapes: is the number of shapes of a trace; give --from-trace"),
        (["--from-trace", "TRACE", "--shapes", "9"], "must be an integer, at least 1 and at most 8"),
        (["--from-trace", "SYSTEM"], "the first line must name TIMESTAMP"),
    ],
)
def test_wrong_traces_of_loads_are_named(tmp_path: Path, run: Run, words: list[str], text: str) -> None:
    system_of(tmp_path, document(MIX, TARGET))
    (tmp_path / "t.csv").write_text(TRACES["azure.csv"])
    names = {"TRACE": str(tmp_path / "t.csv"), "SYSTEM": str(tmp_path / "system.yaml")}
    for name, path in names.items():
        words = [word.replace(name, path) for word in words]
    answer = run("solve", tmp_path / "system.yaml", *words)
    assert answer.status == 2
    assert text in answer.err
    assert answer.err.count("\n") == 1


def test_a_trace_names_its_server_if_there_are_several(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(TRACES["azure.csv"])
    source = document(MIX, TARGET)
    source["servers"].append(source["servers"][0] | {"name": "z"})
    with pytest.raises(SpecError, match=r"the system has 2 loads; name the server of the trace: s="):
        with_traces(load_system(source), [str(trace)])
    (work,) = document({"avgInTokens": 100, "avgOutTokens": 50}, TARGET)["servers"]
    source["servers"][1] = work | {"name": "z", "deadline": {"requests": 100, "hours": 8}}
    with pytest.raises(SpecError, match="server 'z' has a deadline, which sets its load"):
        with_traces(load_system(source), [f"z={trace}"])


def test_the_worth_of_hits_is_that_of_each_server_alone() -> None:
    source = document(PREFIX, {"slo-ttft": "1s", "slo-itl": "50ms"})
    (server,) = source["servers"]
    light = copy.deepcopy(server) | {"name": "light"}
    light["currentAlloc"]["load"]["arrivalRate"] = "10/s"
    alone, few, both = (
        [str(item).rpartition(": ")[2] for item in check_text(yaml.safe_dump(body)).warnings]
        for body in (source, source | {"servers": [light]}, source | {"servers": [server, light]})
    )
    assert len(alone) == len(few) == 1
    assert alone != few
    assert both == alone + few
