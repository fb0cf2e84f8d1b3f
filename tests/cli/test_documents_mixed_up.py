"""A plan given as a system, the reverse, and other answers given as either are named in one line."""

import json
from pathlib import Path

import pytest
from builders import accelerator, document, server
from commands import Run, is_one_line

from optimizer import Comparison, Explanation, Figure, Report, load_plan
from optimizer.cli.main import main
from optimizer.fitting.profile import FittedProfile
from optimizer.schema import SystemSpec
from optimizer.schema.recognition import answer_name
from optimizer.spec.writing import write_document, write_text
from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a system in three forms, and a plan of it in two."""
    source = document([server("s")], [accelerator("A")], {"A": 9})
    for name in ("system.json", "system.yaml", "folder/system.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_document(source, tmp_path / name)
    assert main(["solve", str(tmp_path / "system.yaml"), "-o", str(tmp_path / "plan.json")]) == 0
    write_document(json.loads((tmp_path / "plan.json").read_text()), tmp_path / "plan.yaml")
    return tmp_path


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["plan.json", "plan.yaml"])
@pytest.mark.parametrize("command", [("solve",), ("check",), ("verify", "plan.json"), ("report",)])
def test_a_plan_is_no_system(run: Run, command: tuple[str, ...], name: str, folder: Path) -> None:
    answer = run(command[0], *(folder / word for word in command[1:]), folder / name)
    is_one_line(answer, f"error: {folder / name}: this is a plan, or an answer; give the system instead\n")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["system.json", "system.yaml", "folder", "sample:small", "sample:chat"])
def test_a_system_is_no_plan(run: Run, name: str, folder: Path) -> None:
    path = name if name.startswith("sample:") else folder / name
    what = "this directory is a system" if name in {"folder", "sample:small"} else "this is a system"
    for words in (
        ["verify", path, folder / "system.yaml"],
        ["manifests", path],
        ["simulate", folder / "system.yaml", "--plan", path],
    ):
        said = f"{what}; give a plan instead, as 'inferplan solve -o plan.json' writes it\n"
        is_one_line(run(*words), said)


def test_a_plan_in_yaml_is_read_wherever_a_plan_is(folder: Path) -> None:
    plan, system = str(folder / "plan.yaml"), str(folder / "system.yaml")
    assert load_plan(plan) == load_plan(folder / "plan.json")
    assert main(["verify", plan, system]) == 0
    assert main(["compare", plan, "--with", system]) == 0


@pytest.mark.slow
def test_other_answers_are_named(run: Run, folder: Path) -> None:
    system = folder / "system.yaml"
    answers: dict[str, list[str | Path]] = {
        "a comparison": ["compare", system],
        "a list of candidates": ["candidates", system],
        "an estimate": ["estimate", "llama-3.1-8b", "H100"],
    }
    for what, command in answers.items():
        write_text(run(*command, "--json").out, folder / "answer.json")
        is_one_line(run("check", folder / "answer.json"), f"this is {what}; give the system instead")
        is_one_line(run("manifests", folder / "answer.json"), f"this is {what}; give a plan instead")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Comparison, "a comparison"), (Explanation, "an explanation"), (Report, "a report"),
        (Figure, "a figure"), (Simulation, "a simulation"), (FittedProfile, "a fitted profile"),
        (RepairedPlan, "a repaired plan with its simulation"), (SystemSpec, None),
    ],
)  # fmt: skip
def test_each_answer_is_told_by_its_fields(kind: type[Report], what: str | None) -> None:
    fields = {field.alias or name: None for name, field in kind.model_fields.items()}
    assert answer_name(fields) == what
