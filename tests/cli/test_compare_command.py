"""`inferplan compare`: every way to name two sides, and one clear line where they make no sense."""

import json
import re
from pathlib import Path

import pytest
from commands import Run, is_one_line

from optimizer import compare, load_system, scale_loads, solve
from optimizer.spec.loads import with_loads

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def plan_file(specs: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(solve(load_system(specs / "small")).to_json(), encoding="utf-8")
    return path


# --- the same as the library -----------------------------------------------------------------------------


@pytest.mark.slow
def test_loads_from_a_file_are_the_second_side(run: Run, specs: Path, tmp_path: Path) -> None:
    sample, loads = load_system(specs / "small"), tmp_path / "loads.csv"
    loads.write_text("server,arrivalRate\nPremium-llama_70b,70\n", encoding="utf-8")
    expected = compare(sample, with_loads(sample, loads), transition=True)
    assert run("compare", specs / "small", "--load", loads, "--json").out == expected.to_json() + "\n"


@pytest.mark.slow
def test_two_systems_are_labelled_by_their_paths(run: Run, specs: Path) -> None:
    one, two = specs / "small", specs / "long-prompts.yaml"
    found = run("compare", one, "--with", two, "--json").json
    assert (found["kind"], found["first"]["label"], found["second"]["label"]) == ("plans", str(one), str(two))
    assert found["first"]["plan"] == json.loads(solve(load_system(one)).to_json())
    assert found["second"]["plan"] == json.loads(solve(load_system(two)).to_json())


def test_options_of_the_second_side_have_document_names(run: Run, specs: Path) -> None:
    text = "heterogeneous=true,saturationPolicy=None,GAP=0.5"
    found = run("compare", specs / "small", "--with-options", text, "--json").json
    first, second = found["first"]["options"], found["second"]["options"]
    assert (first["heterogeneous"], second["heterogeneous"]) == (False, True)
    assert (second["saturationPolicy"], second["gap"]) == ("None", 0.5)
    assert found["second"]["label"] == text


@pytest.mark.slow
def test_the_second_side_can_have_any_value_that_sweeps_can_vary(run: Run, specs: Path) -> None:
    system = load_system(specs / "small")
    found = run("compare", specs / "small", "--with-options", "count:G2=90,load=150%,gap=0", "--json").json
    after = scale_loads(system.with_capacity({"G2": 90}), 1.5)
    assert found["kind"] == "options"
    assert found["first"]["plan"] == json.loads(solve(system).to_json())
    assert found["second"]["plan"] == json.loads(solve(after, gap=0.0).to_json())
    assert found["second"]["label"] == "count:G2=90,load=150%,gap=0"


def test_lost_reserves_are_a_table_of_their_own(run: Run) -> None:
    """`minimal.yaml` has a server with a spare, which the cards do not suffice for."""
    flags = ("--table", "lost-reserves")
    minimal = DATA / "reserves" / "minimal.yaml"
    rows = run("compare", minimal, *flags, "--csv").out.splitlines()
    assert rows == ["server,prio,unlimited,limited", "one,1,has 1 spare,lacks 1 spare"]
    more = run("compare", minimal, "--with-options", "unlimited=true", "--unlimited", *flags)
    assert more == (0, "Lost and different reserves: none\n", "")


@pytest.mark.slow
def test_options_of_the_second_side_combine_with_system_and_load(run: Run, specs: Path) -> None:
    for flags in (("--scale", "1.1"), ("--with", specs / "small")):
        options = ("--with-options", "unlimited=true", "--json")
        found = run("compare", specs / "small", *flags, *options).json
        sides = [found[side]["options"]["unlimited"] for side in ("first", "second")]
        assert sides == [False, True]


def test_a_saved_plan_stands_on_either_side(run: Run, specs: Path, plan_file: Path) -> None:
    for sides in ((plan_file, specs / "small"), (specs / "small", plan_file), (plan_file, plan_file)):
        answer = run("compare", sides[0], "--with", sides[1])
        assert (answer.status, answer.err) == (0, "")
        assert answer.words.startswith("No difference: ")
        assert "is a finished plan, taken as it is" in answer.words


def test_a_side_may_come_from_standard_input(run: Run, specs: Path, plan_file: Path) -> None:
    answer = run("compare", specs / "small", "--with", "-", stdin=plan_file.read_bytes())
    assert "and standard input run and serve the same, at 41,857.75 cents/h" in answer.words


# --- what makes no sense ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["PLAN"], "is a plan; name another to compare it with"),
        (["PLAN", "--scale", "2"], "--scale: .* is a plan, which has no loads; give its system"),
        (["PLAN", "--with", "PLAN", "--mixed"], "both sides are plans, so nothing is solved"),
        (["SMALL", "--with", "PLAN", "--with-options", "gap=1"], "--with-options: .* is a plan"),
        (["SMALL", "--with", "SMALL", "--random-load", "1"], "--random-load: compares one system before"),
        (["SMALL", "--unlimited"], "--unlimited: both plans, limited and unlimited, are compared"),
        (["SMALL", "--limited"], "--limited: both plans, limited and unlimited, are compared"),
        (["SMALL", "--with-options", "gap"], "--with-options: 'gap' is not NAME=VALUE"),
        (["SMALL", "--with-options", "gap=1,gap=0"], "--with-options: gap occurs twice"),
        (["SMALL", "--with-options", "colour=red"], "--with-options: colour: unknown key"),
        (["SMALL", "--with-options", "count:G3=1"], "item of count: 'G3' does not exist"),
        (["SMALL", "--with-options", "load=x"], "load: 'x': give a number"),
        (["SMALL", "--with-options", "gap=2"], "--with-options: gap: must be at most 1, not 2"),
        (["SMALL", "--mixed", "--solver", "greedy"], "--mixed: the greedy solver plans one accelerator"),
        (["-", "--with", "-"], "--with: standard input can be read once only"),
        (["SMALL", "--with", "nothing"], "nothing: no such file or directory"),
        (["SMALL", "--scale", "-1"], "argument --scale: '-1': must be at least 0"),
        (["SMALL", "--random-load", "1.5"], "argument --random-load: '1.5': must be an integer, at least 0"),
        (["SMALL", "--scale", "2", "--random-load", "1"], "--scale: the load can be changed in only one way"),
        (["SMALL", "--scale", "2", "--load", "x.csv"], "--load: the load can be changed in only one way"),
        (["SMALL", "--backend", "nobody"], "nobody"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    run: Run, specs: Path, plan_file: Path, arguments: list[str], message: str
) -> None:
    paths = {"SMALL": str(specs / "small"), "PLAN": str(plan_file)}
    answer = run("compare", *(paths.get(item, item) for item in arguments))
    is_one_line(answer, "inferplan")
    assert re.search(message, answer.err), answer.err
