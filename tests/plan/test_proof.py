"""Proofs of bounds: what multipliers prove, and that false ones are refused."""

from functools import cache
from pathlib import Path

import pytest
from slow_cases import mostly_slow

from optimizer import find_candidates, load_system, solve
from optimizer.cli import verifying
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.generate import generate_system
from optimizer.plan import Plan
from optimizer.plan.proof import Proof, check_proof, load_proof, prove
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System


def found(system: System) -> tuple[Plan, Proof]:
    plan = solve(system)
    return plan, prove(plan, find_candidates(system), Deadline.after(3600))


@cache
def of_scarce(*, mixed: bool) -> tuple[System, Plan, Proof]:
    system = scarce(mixed=mixed)
    return system, *found(system)


def scarce(*, mixed: bool) -> System:
    return generate_system(20, 8, 4, 5, 1.8).with_options(heterogeneous=mixed)


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
def test_multipliers_prove_most_of_every_bound_of_a_scarce_plan(mixed: bool) -> None:  # noqa: FBT001
    system, plan, proof = of_scarce(mixed=mixed)
    assert not plan.complete
    wrong, open_points = check_proof(plan, system, proof)
    assert wrong == []
    assert all("is unverified" in point for point in open_points)
    by_name = {level.name: level for level in proof.levels}
    for level in plan.levels:
        assert level.bound is not None
        assert by_name[level.name].bound <= level.value * (1 + 1e-9) + 1e-9, level.name
    value = next(level for level in plan.levels if level.name == "value")
    assert by_name["value"].bound >= 0.9 * value.value


@pytest.mark.parametrize(("mixed", "bound"), mostly_slow([(True, 25740.2521), (False, 27857.4676)], 1))
def test_the_relaxation_of_large_is_proved_without_a_solver(
    specs: Path,
    mixed: bool,  # noqa: FBT001
    bound: float,
) -> None:
    # Source of the figures: the linear relaxations as HiGHS 1.15.1 solves them.
    system = load_system(specs / "large").with_options(heterogeneous=mixed)
    plan, proof = found(system)
    assert check_proof(plan, system, proof)[0] == []
    assert proof.levels[-2].bound == pytest.approx(bound, abs=1e-3)


@pytest.mark.slow
def test_a_bound_above_what_its_multipliers_prove_is_refused() -> None:
    system, plan, proof = of_scarce(mixed=True)
    for i, level in enumerate(proof.levels):
        higher = level.model_copy(update={"bound": level.bound + 1.0})
        falsified = Proof(levels=(*proof.levels[:i], higher, *proof.levels[i + 1 :]))
        wrong, _ = check_proof(plan, system, falsified)
        assert len(wrong) == 1, level.name
        assert wrong[0].startswith(f"{level.name}: the multipliers prove ")


def test_arbitrary_multipliers_never_prove_more_than_the_value() -> None:
    system, plan, proof = of_scarce(mixed=True)
    value = next(level for level in proof.levels if level.units)
    for factor in (0.0, 0.5, 2.0):
        units = {name: price * factor for name, price in value.units.items()}
        other = Proof(levels=(value.model_copy(update={"units": units}),))
        assert len(check_proof(plan, system, other)[0]) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "priority 9: unserved rate"}, "the plan has no such level"),
        ({"units": {"X": 1.0}}, "units.X: the system has no such accelerator type"),
        ({"units": {"T00": -1.0}}, "units.T00: a price must be at least 0, not -1"),
        ({"levels": {"cost": 1.0}}, "levels.cost: the plan has no such level"),
        ({"levels": {"value": -2.0}}, "levels.value: a price must be at least 0, not -2"),
    ],
)
def test_a_proof_that_is_of_another_plan_is_refused(change: dict[str, object], words: str) -> None:
    system, plan, proof = of_scarce(mixed=False)
    other = Proof(levels=(proof.levels[0].model_copy(update=change), *proof.levels[1:]))
    wrong, open_points = check_proof(plan, system, other)
    assert len(wrong) == 1
    assert wrong[0].endswith(words)
    assert open_points == []


def test_levels_decided_by_a_policy_have_no_multipliers() -> None:
    system = scarce(mixed=True).with_options(saturation_policy="PriorityExhaustive")
    plan, proof = found(system)
    names = [level.name for level in proof.levels]
    assert "value" not in names
    wrong, open_points = check_proof(plan, system, proof)
    assert wrong == []
    assert any(point.startswith("value: no multipliers") for point in open_points)


def test_solve_writes_a_proof_that_verify_checks(
    tmp_path: Path, specs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, proof = str(tmp_path / "plan.json"), str(tmp_path / "proof.json")
    path = str(specs / "small")
    assert main(["solve", path, "--mixed", "-o", plan, "--proof", proof, "--json"]) == 0
    capsys.readouterr()
    assert main(["verify", plan, path, "--mixed", "--proof", proof]) == 0
    assert "the plan holds; the bound" in capsys.readouterr().out
    text = Path(plan).read_text()
    assert "multipliers" not in text
    capsys.readouterr()
    assert main(["verify", plan, path, "--unlimited"]) == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("inferplan: error: ")
    assert said[-1].endswith("if it was solved with --mixed, verify it with --mixed")
    monkeypatch.setattr(verifying, "MAX_SHOWN", 2)
    assert main(["verify", plan, path, "--unlimited"]) == 4
    shown = capsys.readouterr().err.splitlines()
    assert shown == [*said[:2], f"inferplan: error: {len(said) - 3} more; --json shows all", said[-1]]
    assert main(["verify", plan, path, "--mixed", "--proof", plan]) == 2
    assert len(load_proof(proof).levels) == len(Plan.model_validate_json(text).levels)


def test_a_file_that_is_no_proof_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text('{"levels": [{"name": "value"}]}')
    with pytest.raises(SpecError, match=r"levels\[0\]\.bound"):
        load_proof(path)
