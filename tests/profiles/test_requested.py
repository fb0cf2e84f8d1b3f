"""Documents that ask for estimates: planned from names, marked everywhere, refused where nothing fits."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import LLAMA, without_hash

from optimizer import compare, explain, find_candidates, load_system, make_report, solve, verify
from optimizer.candidates.arrays import profile_of
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import estimate_profile
from optimizer.render.pages import render_report
from optimizer.schema import SystemSpec
from optimizer.simulation.replicas import TokenReplica
from optimizer.studies.figures.making import make_figure
from optimizer.studies.simulation.pools import pool_runs

LENGTHS = {"avgInTokens": 1024, "avgOutTokens": 256}


def document(parms: object = "estimate", **profile: object) -> dict[str, Any]:
    """Return one server of Llama 3.1 8B, on one H100 or on four L4."""
    slices = [("H100", "H100", 1, 400), ("4xL4", "L4", 4, 300)]
    return {
        "accelerators": [
            {"name": name, "type": kind, "multiplicity": cards, "cost": cost}
            for name, kind, cards, cost in slices
        ],
        "models": [
            {"name": "llama-3.1-8b", "acc": name, "perfParms": parms, **profile} for name, *_ in slices
        ],
        "serviceClasses": [
            {"name": "chat", "modelTargets": [{"model": "llama-3.1-8b", "slo-ttft": 2000, "slo-itl": 80}]}
        ],
        "servers": [
            {
                "name": "s", "class": "chat", "model": "llama-3.1-8b",
                "currentAlloc": {"load": {"arrivalRate": 300, **LENGTHS}},
            }
        ],
        "optimizer": {"unlimited": True},
    }  # fmt: skip


def given() -> dict[str, Any]:
    return document({"alpha": 8, "beta": 0.02, "gamma": 0.00005}, maxBatchSize=64)


def test_a_plan_needs_no_more_than_names() -> None:
    system = load_system(document())
    plan = solve(system)
    assert plan.complete
    assert verify(plan, system) == []
    (pool,) = plan.allocations["s"]
    assert pool.estimated == "upper"


def test_profiles_use_the_upper_end_for_the_servers_requests() -> None:
    system = load_system(document())
    for name, tp, accelerator in (("H100", 1, "H100"), ("4xL4", 4, "L4")):
        found = profile_of(system, system.servers["s"], name)
        told = estimate_profile(
            "llama-3.1-8b", accelerator, Deployment(tp=tp, in_tokens=1024, out_tokens=256)
        )
        assert found.iteration is not None
        assert found.iteration.base_ms == told.alpha_at(found.max_batch_size).high
        assert found.iteration.compute_per_token_ms == told.beta_ms.high
        assert found.iteration.kv_read_per_token_ms == told.gamma_ms.high
        assert found.kv_capacity_tokens == int(told.kv_tokens.low)
        assert found.max_batch_size == told.max_batch_low


def test_what_the_document_states_beside_it_stays() -> None:
    system = load_system(
        document({"estimate": {"tp": 2, "weights": "fp8"}}, maxBatchSize=8, kvCapacity=90_000)
    )
    found = profile_of(system, system.servers["s"], "H100")
    assert (found.max_batch_size, found.kv_capacity_tokens) == (8, 90_000)
    told = estimate_profile(
        "llama-3.1-8b", "H100", Deployment(tp=2, weights="fp8", in_tokens=1024, out_tokens=256)
    )
    assert found.iteration is not None
    assert found.iteration.base_ms == told.alpha_ms.high


def test_servers_of_one_model_have_estimates_of_their_own() -> None:
    raw = document()
    long = {"arrivalRate": 10, "avgInTokens": 16_000, "avgOutTokens": 400}
    raw["servers"].append({**raw["servers"][0], "name": "long", "currentAlloc": {"load": long}})
    system = load_system(raw)
    short, other = (profile_of(system, system.servers[name], "H100") for name in ("s", "long"))
    assert short.iteration is not None
    assert other.iteration is not None
    assert other.iteration.compute_per_token_ms > 1.1 * short.iteration.compute_per_token_ms
    assert other.max_batch_size < short.max_batch_size
    plan = solve(system)
    assert plan.complete
    assert verify(plan, system) == []


@pytest.mark.parametrize(("end", "name"), [("upper", "high"), ("middle", "value"), ("lower", "low")])
def test_mixture_alpha_grows_with_the_batch_at_any_limit(end: str, name: str) -> None:
    settings = {"estimate": {"model": "deepseek-v3", "accelerator": "H200", "tp": 8}}
    told = estimate_profile("deepseek-v3", "H200", Deployment(tp=8, in_tokens=1024, out_tokens=256))
    for batch in (1, 128):
        raw = document(settings, maxBatchSize=batch)
        raw["optimizer"]["estimates"] = end
        system = load_system(raw)
        law = profile_of(system, system.servers["s"], "H100").iteration
        assert law is not None
        assert law.base_ms == getattr(told.alpha_alone_ms, name)
        assert law.expert_read_ms == getattr(told.expert_read_ms, name)
        assert law.expert_share == 8 / 256
    assert told.alpha_at(128).value > 2 * told.alpha_at(1).value


def test_misfits_are_rejected_with_alternatives() -> None:
    raw = document({"estimate": {"model": "llama-3.1-70b"}})
    raw["accelerators"].append({"name": "4xH100", "type": "H100", "multiplicity": 4, "cost": 1600})
    raw["models"].append(
        {"name": "llama-3.1-8b", "acc": "4xH100", "perfParms": raw["models"][0]["perfParms"]}
    )
    system = load_system(raw)
    refused = {item.accelerator: item for item in find_candidates(system).rejections()}
    assert refused["H100"].reason == "does_not_fit"
    assert "it fits with tp 4" in refused["H100"].detail
    assert "GiB per device" in refused["4xL4"].detail
    plan = solve(system)
    assert [pool.accelerator for pool in plan.allocations["s"]] == ["4xH100"]
    alone = load_system({**raw, "models": raw["models"][:1]})
    (missing,) = solve(alone).unserved
    assert missing.detail.startswith("H100: llama-3.1-70b in bf16 does not fit H100")


def test_plans_at_the_lower_end_cost_no_more(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(document()))
    costs = []
    for end in ("lower", "middle", "upper"):
        assert main(["solve", str(path), "--estimates", end, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert {pool["estimated"] for pool in plan["allocations"]["s"]} == {end}
        costs.append(plan["totalCostCentsPerH"])
    assert costs == sorted(costs)
    assert costs[0] < costs[2]


@pytest.mark.slow
def test_estimates_are_marked_wherever_they_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, raw, marked in (("estimated", document(), True), ("given", given(), False)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(raw))
        for command in ("solve", "candidates", "explain", "compare", "report"):
            assert main([command, str(path)]) == 0
            out = " ".join(capsys.readouterr().out.split())
            assert ("estimated from data sheets, not measured" in out) == marked, (name, command)
            assert "~" not in out, (name, command)  # no other row is measured
        for command in ("solve", "candidates", "explain", "compare", "report"):
            assert main([command, str(path), "--json"]) == 0
            assert ('"estimated"' in capsys.readouterr().out) == marked, (name, command)


@pytest.mark.slow
def test_pages_mark_estimated_pools_only() -> None:
    system = load_system(document())
    report = make_report(system)
    assert "Token times are estimated from data sheets, not measured" in render_report(report, system, "html")
    head, row = csv.reader(render_report(report, system, "csv").splitlines()[:2])
    assert dict(zip(head, row, strict=True))["estimated"] == "upper"
    plain = load_system(given())
    assert "estimated" not in render_report(make_report(plain), plain, "csv")


def test_given_token_times_replace_an_estimate_as_a_whole() -> None:
    for parms in ({"estimate": {}, "alpha": 5}, {"estimate": {"weights": "fp8"}, "gamma": 1e-5}):
        with pytest.raises(SpecError, match="both coefficients and an estimate are given"):
            load_system(document(parms))
    with pytest.raises(SpecError, match="both decodeParms/prefillParms and an estimate"):
        load_system(document(decodeParms={"alpha": 5}))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "lama-3.1-8b"}, "did you mean"),
        ({"accelerator": "H10"}, "is not in the catalogue"),
        ({"weights": "fp5"}, "fp5"),
        ({"tp": 5000}, "tp: must be between 1 and 1024"),
    ],
)
def test_what_cannot_be_estimated_is_refused_at_its_place(
    settings: object, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(document({"estimate": settings})))
    with pytest.raises(SpecError, match=r"^models\.llama-3\.1-8b\.\w+\.perfParms\.estimate: ") as refused:
        solve(load_system(path))
    assert problem in str(refused.value)
    assert main(["check", str(path)]) == 2


def test_configs_are_read_only_from_the_documents_folder(tmp_path: Path) -> None:
    config = LLAMA | {"torch_dtype": "bfloat16"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    raw = document({"estimate": {"config": "mine/config.json"}})
    path = tmp_path / "system.json"
    path.write_text(json.dumps(raw))
    by_config, by_name = solve(load_system(path)), solve(load_system(document()))
    assert without_hash(by_config) == without_hash(by_name)
    with pytest.raises(SpecError, match="only documents in files can name a config"):
        load_system(raw)
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config | {"num_engrams": 3}))
    with pytest.raises(SpecError, match="num_engrams = 3: this key is not known"):
        solve(load_system(path))
    ignoring = document({"estimate": {"config": "mine/config.json", "ignoreKeys": ["num_engrams"]}})
    path.write_text(json.dumps(ignoring))
    assert without_hash(solve(load_system(path))) == without_hash(by_name)
    with pytest.raises(SpecError, match=r"ignoreKeys: llama-3\.1-8b is a name of the catalogue"):
        solve(load_system(document({"estimate": {"ignoreKeys": ["num_engrams"]}})))
    path.write_text(json.dumps(raw))
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 64}))
    assert solve(load_system(path)) != by_name  # written anew, read anew
    (tmp_path / "mine" / "config.json").unlink()
    with pytest.raises(SpecError, match="no such file"):
        solve(load_system(path))


@pytest.mark.slow
def test_without_estimates_only_warnings_load_the_catalogue() -> None:
    text = (
        "import json, sys; from optimizer import load_system; from optimizer.pipeline import solve_in_full;"
        "solve_in_full(load_system(json.loads(sys.argv[1])));"
        "assert not [name for name in sys.modules if name.startswith('optimizer.profiles')]"
    )
    subprocess.run([sys.executable, "-c", text, json.dumps(given())], check=True)


def test_a_lie_about_what_is_estimated_is_found() -> None:
    system = load_system(document())
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    for end in (None, "lower"):
        lie = plan.model_copy(update={"allocations": {"s": (pool.model_copy(update={"estimated": end}),)}})
        assert any("estimated" in line for line in verify(lie, system))
    assert verify(plan.model_copy(update={"currency": "USD"}), system) == [
        "currency is absent, the plan says 'USD'"
    ]


@pytest.mark.slow
def test_studies_work_on_estimates() -> None:
    system = load_system(document())
    note = "token times are estimated in 1 pool"
    assert note in make_figure(system, "plan", server=None, accelerator=None).note
    assert note not in make_figure(load_system(given()), "plan", server=None, accelerator=None).note
    assert explain(system).servers[0].next_best is not None
    assert compare(system).total.first is not None


def test_a_simulation_runs_the_estimate_that_was_planned_with() -> None:
    system = load_system(document())
    (run,) = pool_runs(system, solve(system))
    planned = profile_of(system, system.servers["s"], run.pool.accelerator)
    assert planned.iteration is not None
    assert isinstance(run.replica, TokenReplica)
    assert run.replica.times[0] == planned.iteration.base_ms
    assert run.replica.limits.kv_tokens == planned.kv_capacity_tokens


def test_the_schema_offers_the_word() -> None:
    parms = SystemSpec.model_json_schema(by_alias=True)["$defs"]["ModelProfile"]["properties"]["perfParms"]
    assert {"type": "string", "enum": ["estimate"]} in parms["anyOf"]
