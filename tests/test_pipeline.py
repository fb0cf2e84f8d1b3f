"""`solve`: options, timings, and the same bytes whatever the order, the process or the hash seed."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from builders import accelerator, document, server, shuffled, system

from optimizer import Timings, load_system, solve
from optimizer.generate import generate_system

SOLVE_STDIN = "from optimizer import load_system, solve; print(solve(load_system('-')).to_json(), end='')"


# --- determinism ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("capacities", ["limited", "unlimited"])
@pytest.mark.parametrize("name", ["small", "large"])
def test_shuffled_samples_give_the_same_bytes(name: str, capacities: str, specs: Path) -> None:
    sample = load_system(specs / name).with_options(unlimited=capacities == "unlimited")
    source = sample.to_spec().model_dump(mode="json", by_alias=True)
    mixed = load_system(shuffled(source, random.Random(1)))
    assert solve(mixed).to_json() == solve(sample).to_json()


@pytest.mark.slow
def test_a_shuffled_scarce_fleet_gives_the_same_bytes() -> None:
    """40 servers, many answers of equal service."""
    fleet = generate_system(servers=40, accelerators=12, types=4, seed=5, tightness=1.6)
    source = fleet.to_spec().model_dump(mode="json", by_alias=True)
    plan = solve(fleet)
    assert not plan.complete
    assert solve(load_system(shuffled(source, random.Random(2)))).to_json() == plan.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["4242", pytest.param("0", marks=pytest.mark.slow)])
def test_output_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    fleet = generate_system(servers=12, accelerators=8, types=3, seed=2, tightness=1.6)
    answer = subprocess.run(
        [sys.executable, "-c", SOLVE_STDIN],
        input=json.dumps(fleet.to_spec().model_dump(mode="json", by_alias=True)),
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        check=True,
        text=True,
    )
    plan = solve(fleet)
    assert not plan.complete
    assert answer.stdout == plan.to_json()
    assert answer.stderr == ""


def test_nothing_of_the_clock_is_in_a_plan() -> None:
    fleet = generate_system(servers=5, accelerators=4, types=2, seed=1)
    assert solve(fleet, timings=Timings()).to_json() == solve(fleet).to_json()


# --- options -------------------------------------------------------------------------------------------


def test_options_replace_those_of_the_document() -> None:
    source = system([server("a", replicas=3)], [accelerator("A")], {"A": 2})
    assert not solve(source).complete
    assert solve(source, unlimited=True).complete
    assert not solve(source).complete  # the system itself is unchanged


def test_an_option_with_its_default_value_still_replaces() -> None:
    source = load_system(document([server("a", replicas=3)], [accelerator("A")], transitionPenalty=0.5))
    assert solve(source).objective == pytest.approx(45)  # 30 to run, half of it to start
    assert solve(source, transition_penalty=0.1).objective == pytest.approx(33)


# --- timings -------------------------------------------------------------------------------------------


def test_timings_name_the_stages_in_their_order() -> None:
    timings = Timings()
    solve(system([server("a")], [accelerator("A")], {"A": 5}), timings=timings)
    assert list(timings.stages_s) == ["candidates", "solve", "plan", "verify", "warnings"]
    assert all(seconds > 0 for seconds in timings.stages_s.values())


def test_timings_of_two_jobs_add_up() -> None:
    timings = Timings()
    source = system([server("a")], [accelerator("A")], {"A": 5})
    solve(source, timings=timings)
    once = dict(timings.stages_s)
    solve(source, timings=timings)
    assert all(timings.stages_s[name] > seconds for name, seconds in once.items())
