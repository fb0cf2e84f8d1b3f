"""Other solvers through PuLP, and the model as a file: the same levels, the same optimum."""

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import highspy
import pytest
from builders import accelerator, document, running, server, service_class, system
from mixed_oracles import random_mixed_document
from slow_cases import mostly_slow

from optimizer import Plan, SpecError, System, Timings, load_system, solve
from optimizer.cli.main import main
from optimizer.generate import generate_system

FEW = ["case08", "case21", "case28"]
"""The largest, and the scarcest with a policy of its own, and the one with most servers."""
KINDS = ["single", "mixed"]
CASES = [*FEW, *(name for name in (f"case{number:02d}" for number in range(30)) if name not in FEW)]


# --- the same levels ---------------------------------------------------------------------------------------


def assert_backends_agree(source: System) -> None:
    """Both prove every level; of their equal answers the last level has the same number of changes."""
    source = source.with_options(gap=0.0, time_limit_s=300.0)
    ours, theirs = solve(source), solve(source, backend="CBC")
    assert ours.status == theirs.status == "optimal"
    assert [level.name for level in ours.levels] == [level.name for level in theirs.levels]
    for ours_there, level in zip(ours.levels, theirs.levels, strict=True):
        assert level.value == pytest.approx(ours_there.value, rel=1e-9, abs=1e-6), level.name
        assert level.bound == pytest.approx(level.value, rel=1e-6, abs=1e-6), level.name


def case(reference: Path, name: str, *, mixed: bool) -> System:
    record = json.loads((reference / "optimizer" / f"{name}.json").read_text())
    return load_system(record["request"]).with_options(
        unlimited=False, milp_solver=True, heterogeneous=mixed, saturation_policy="None"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", mostly_slow(CASES, 1))
def test_highs_and_cbc_agree_on_systems_of_the_reference(name: str, kind: str, reference: Path) -> None:
    assert_backends_agree(case(reference, name, mixed=kind == "mixed"))


@pytest.mark.slow
@pytest.mark.parametrize("divisor", [1, 4])
def test_highs_and_cbc_agree_on_the_samples(divisor: int, specs: Path) -> None:
    source = load_system(specs / "small").with_options(saturation_policy="None")
    units = {kind: count // divisor for kind, count in source.capacity.items()}
    assert_backends_agree(source.with_capacity(units))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_highs_and_cbc_agree_on_random_systems(kind: str) -> None:
    for seed in range(10):
        source = load_system(random_mixed_document(seed))
        assert_backends_agree(source.with_options(heterogeneous=kind == "mixed"))


def test_highs_and_cbc_agree_on_unlimited_mixed_plans(reference: Path) -> None:
    source = case(reference, "case18", mixed=True).with_options(unlimited=True)
    assert_backends_agree(source)


@pytest.mark.slow
def test_highs_and_cbc_agree_under_a_saturation_policy(specs: Path) -> None:
    source = load_system(specs / "large").with_options(saturation_policy="PriorityExhaustive")
    units = {kind: count // 2 for kind, count in source.capacity.items()}
    assert_backends_agree(source.with_capacity(units))


def test_the_command_line_takes_a_backend(specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["solve", str(specs / "small"), "--limited", "--backend", "CBC", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert plan["totalCostCentsPerH"] == pytest.approx(
        41_857.75
    )  # shared/reference/README.md, "Known answers"
    assert (plan["status"], plan["gap"]) == ("optimal", 0)


# --- the model as a file -----------------------------------------------------------------------------------


@cache
def complete() -> System:
    """Everything fits; two servers run already, so that staying and changing have their variables."""
    return generate_system(servers=6, accelerators=6, types=3, seed=3, tightness=0.7)


@cache
def scarce() -> System:
    return generate_system(servers=8, accelerators=6, types=3, seed=3, tightness=2.5)


@cache
def moving() -> System:
    servers = [
        server("a", 240.0, replicas=2, current=running("A", 3, 30.0), service="high"),
        server("b", 120.0, replicas=2, current=running("B", 2, 24.0)),
        server("c", 0.0, replicas=3),
        server("d", 600.0, replicas=9),
        server("e", 60.0, accelerators=["C"], current=running("C", 2, 7.0)),
    ]
    return system(
        servers,
        [accelerator("A", cost=10.0), accelerator("B", cost=12.0), accelerator("C", cost=20.0)],
        {"A": 4, "B": 6, "C": 0},
        classes=[service_class("high", 1), service_class("gold", 2)],
    )


@cache
def reserving() -> System:
    """Servers with headroom, some in vain, on accelerators with a commitment and a second price."""
    servers = [server("a", 6000.0), server("b", 200.0), server("c", 900.0, current=running("B", 2, 40.0))]
    cheap = {**accelerator("A", cost=10.0), "tiers": [{"units": 2, "cost": 4.0, "committed": True}]}
    return system(servers, [cheap, accelerator("B", cost=20.0)], {"A": 24, "B": 3}, headroomShare=0.6)


SYSTEMS = {"complete": complete, "scarce": scarce, "moving": moving, "reserving": reserving}


def solved_file(path: Path) -> tuple[float, list[str]]:
    """Return the optimum of a model file, and the names of its columns, by HiGHS."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {"output_flag": False, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}.items():
        assert highs.setOptionValue(name, value) == highspy.HighsStatus.kOk
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    assert highs.run() == highspy.HighsStatus.kOk
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return highs.getInfo().objective_function_value, list(highs.getLp().col_names_)


def written(source: System, path: Path) -> Plan:
    return solve(source.with_options(saturation_policy="None", gap=0.0), write_model_to=path)


@pytest.mark.few(4)
@pytest.mark.parametrize("suffix", mostly_slow([".lp", ".mps"], 1))
@pytest.mark.parametrize("capacities", ["limited", "unlimited"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(SYSTEMS))
def test_a_written_model_has_the_plans_value_as_its_optimum(
    name: str, kind: str, capacities: str, suffix: str, tmp_path: Path
) -> None:
    source = SYSTEMS[name]().with_options(heterogeneous=kind == "mixed", unlimited=capacities == "unlimited")
    path = tmp_path / f"model{suffix}"
    plan = written(source, path)
    assert plan.complete == (name in {"complete", "reserving"} or capacities == "unlimited")
    optimum, _ = solved_file(path)
    assert optimum == pytest.approx(plan.objective, rel=1e-7, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", mostly_slow([".lp", ".mps"], 1))
@pytest.mark.parametrize(("name", "kind"), [("small", "single"), ("small", "mixed"), ("large", "single")])
def test_a_written_sample_has_the_plans_value_as_its_optimum(
    name: str, kind: str, suffix: str, tmp_path: Path, specs: Path
) -> None:
    path = tmp_path / f"model{suffix}"
    plan = written(load_system(specs / name).with_options(heterogeneous=kind == "mixed"), path)
    assert solved_file(path)[0] == pytest.approx(plan.objective, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".lp", ".mps"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_every_written_model_has_the_plans_value_as_its_optimum(
    name: str, kind: str, suffix: str, tmp_path: Path, reference: Path
) -> None:
    source = case(reference, name, mixed=kind == "mixed")
    path = tmp_path / f"model{suffix}"
    plan = written(source, path)
    if len(plan.unserved) < len(source.servers):
        assert solved_file(path)[0] == pytest.approx(plan.objective, rel=1e-7, abs=1e-6)


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", [".lp", ".mps"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(SYSTEMS))
def test_the_legend_names_every_variable(name: str, kind: str, suffix: str, tmp_path: Path) -> None:
    source = SYSTEMS[name]().with_options(heterogeneous=kind == "mixed")
    path = tmp_path / f"model{suffix}"
    written(source, path)
    legend = list(rows_of(tmp_path / f"model{suffix}.legend.csv"))
    assert list(legend[0]) == ["variable", "stands for", "server", "accelerator"]
    named = [row["variable"] for row in legend]
    assert len(set(named)) == len(named)
    # PuLP leaves out of an LP file what no row and no objective mentions, and adds none but a dummy.
    columns = set(solved_file(path)[1]) - {"__dummy"}
    assert columns <= set(named)
    assert {row["variable"] for row in legend if row["accelerator"]} <= columns
    for row in legend:
        assert re.fullmatch(r"[a-z]+(_[0-9]+)*", row["variable"])  # safe in an LP file
        assert row["server"] in source.servers or row["variable"][:2] not in {"x_", "u_", "s_", "k_"}
        assert row["accelerator"] in {"", *source.accelerators}
        assert bool(row["accelerator"]) == row["variable"].startswith("x_")
        assert row["stands for"]


def test_the_legend_says_what_each_kind_of_variable_stands_for(tmp_path: Path) -> None:
    written(moving().with_options(heterogeneous=True), tmp_path / "m.lp")
    legend = {
        (row["stands for"], row["server"], row["accelerator"])
        for row in rows_of(tmp_path / "m.lp.legend.csv")
    }
    assert ("number of replicas", "a", "A") in legend
    assert ("is unserved", "d", "") in legend
    assert ("keeps a pool where it runs now", "a", "") in legend
    assert ("keeps exactly what it has", "a", "") in legend
    written(moving(), tmp_path / "s.lp")
    single = {(row["stands for"], row["server"]) for row in rows_of(tmp_path / "s.lp.legend.csv")}
    assert ("takes 2 replicas", "a") in single


def test_names_that_would_spoil_a_file_do_not(tmp_path: Path) -> None:
    names = ["a b", "c[0]", "-x", "2nd:server", "é+1"]
    source = load_system(
        document([server(name) for name in names], [accelerator("4x A-100")], {"4x A-100": 9})
    )
    for suffix in (".lp", ".mps"):
        plan = written(source, tmp_path / f"m{suffix}")
        assert solved_file(tmp_path / f"m{suffix}")[0] == pytest.approx(plan.objective)
        legend = list(rows_of(tmp_path / f"m{suffix}.legend.csv"))
        assert {row["server"] for row in legend} == set(names)
        assert {row["accelerator"] for row in legend} == {"", "4x A-100"}


@pytest.mark.slow
def test_the_same_model_is_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(scarce(), tmp_path / f"{name}.lp")
    assert (tmp_path / "one.lp").read_bytes() == (tmp_path / "two.lp").read_bytes()


def test_a_system_without_any_column_is_written_too(tmp_path: Path) -> None:
    source = system([server("a")], [accelerator("A")], {"A": 1}, classes=[service_class("gold", itl=1.0)])
    for suffix in (".lp", ".mps"):
        plan = written(source, tmp_path / f"m{suffix}")
        assert [item.server for item in plan.unserved] == ["a"]
        assert (tmp_path / f"m{suffix}").exists()
        assert (tmp_path / f"m{suffix}.legend.csv").exists()


# --- refusals ----------------------------------------------------------------------------------------------


def refusal(**arguments: object) -> str:
    with pytest.raises(SpecError) as caught:
        solve(system([server("a")], [accelerator("A")], {"A": 3}), **arguments)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_unknown_backend_is_named_with_those_that_are_known() -> None:
    text = refusal(backend="nope")
    assert text.startswith("backend: 'nope' is not known; choose highs, CBC or ")
    names = text.split("choose ")[1].replace(" or ", ", ").split(", ")
    assert "CPLEX_PY" in names
    assert len(set(names)) == len(names)


NOT_INSTALLED = "backend: {} is not installed here; install it, or use highs or CBC"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        *(({"backend": name}, NOT_INSTALLED.format(name)) for name in ("CPLEX", "GUROBI", "MOSEK")),
        ({"use_cplex": True}, "backend: CPLEX is not installed here"),
        ({"backend": "nope", "unlimited": True}, "backend: 'nope' is not known"),
        ({"backend": "nope", "milp_solver": False}, "backend: 'nope' is not known"),
        *(
            ({"write_model_to": Path(name)}, f"{name}: the suffix must be .lp or .mps")
            for name in ("model.txt", "model", "model.lp.gz", "model.csv")
        ),
        ({"write_model_to": Path("nowhere/model.lp")}, "nowhere/model.lp: cannot be written: "),
    ],
    ids=str,
)
def test_what_cannot_solve_or_be_written_is_refused_in_one_line(
    options: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(**options).startswith(text)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_suffix_is_refused_before_anything_is_solved() -> None:
    spent = Timings()
    refusal(write_model_to=Path("model.txt"), timings=spent)
    assert not spent.stages_s


def test_the_command_line_refuses_in_one_line_with_two(
    specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", str(specs / "small"), "--backend", "nope"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("inferplan: error: ")
    assert said.out == ""
