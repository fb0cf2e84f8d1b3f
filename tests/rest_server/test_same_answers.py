"""The command, the route and the library give the same answer to a question, whatever its options."""

import json
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import accelerator, document, profile, server, service_class
from commands import Run
from fastapi.testclient import TestClient
from slow_cases import mostly_slow

from optimizer import (
    System,
    compare,
    explain,
    find_candidates,
    load_system,
    make_figure,
    make_report,
    scale_loads,
    solve,
    vary_loads,
)
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.horizons import HorizonOptions, horizon_of
from optimizer.jobs.simulating import SimulateOptions, repair_plan, simulate_plan
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.simulation.replicas import Effort

Given = dict[str, Any]
STATEFUL = False
SOURCE = document(
    [server("s"), server("t", 2000.0)],
    [accelerator("A"), accelerator("B", cost=25.0)],
    {"A": 3, "B": 9},
    classes=[service_class("gold", itl=20.0)],
    models=[profile("m", "A", maxBatchSize=64), profile("m", "B", maxBatchSize=64)],
    gap=0.0,
)
"""The cheaper of two types has too few cards, and batches smaller than those of the profiles are best."""
OPTIONS: list[tuple[Given, Given]] = [
    ({}, {}),
    ({"solver": "greedy"}, {"milp_solver": False}),
    ({"solver": "milp"}, {"milp_solver": True}),
    ({"unlimited": True}, {"unlimited": True}),
    ({"mixed": True}, {"heterogeneous": True}),
    ({"saturation": "PriorityExhaustive"}, {"saturation_policy": "PriorityExhaustive"}),
    ({"gap": 0.5}, {"gap": 0.5}),
    ({"time_limit": 5}, {"time_limit_s": 5.0}),
    ({"solver": "greedy", "unlimited": False}, {"milp_solver": False, "unlimited": False}),
    ({"batch_sizing": "optimal"}, {"batch_sizing": "optimal"}),
]
EFFORT = {"requests": 600, "seed": 4}
SWEPT = {"vary": "load=1..3/3", "samples": 9, "load_cv": 0.2, "seed": 4}
HOURS = HorizonOptions(factors=(0.5, 1.0, 2.0))


def random(system: System) -> System:
    return vary_loads(system, np.random.default_rng(7))


def optimal(system: System) -> System:
    return system.with_options(batch_sizing="optimal")


CASES: list[tuple[str, str, Given, Callable[[System], Any]]] = [
    *(("solve", "plan", given, lambda x, options=options: solve(x, **options)) for given, options in OPTIONS),
    ("solve", "plan", {"scale": 1.5}, lambda x: solve(scale_loads(x, 1.5))),
    ("candidates", "candidates", {}, find_candidates),
    ("candidates", "candidates", {"scale": 1.5}, lambda x: find_candidates(scale_loads(x, 1.5))),
    ("candidates", "candidates", {"batch_sizing": "optimal"}, lambda x: find_candidates(optimal(x))),
    ("explain", "explain", {}, explain),
    ("explain", "explain", {"server": "t"}, lambda x: explain(x, "t")),
    ("explain", "explain", {"unlimited": True}, lambda x: explain(x, unlimited=True)),
    ("explain", "explain", {"mixed": True, "gap": 0.01}, lambda x: explain(x, heterogeneous=True, gap=0.01)),
    ("explain", "explain", {"batch_sizing": "optimal"}, lambda x: explain(optimal(x))),
    ("compare", "compare", {}, compare),
    ("compare", "compare", {"batch_sizing": "optimal"}, lambda x: compare(optimal(x))),
    ("compare", "compare", {"random_load": 7}, lambda x: compare(x, random(x), transition=True)),
    (
        "compare",
        "compare",
        {"scale": 1.5, "mixed": True, "unlimited": True},
        lambda x: compare(x, scale_loads(x, 1.5), transition=True, unlimited=True, heterogeneous=True),
    ),
    ("simulate", "simulate", EFFORT, lambda x: simulate_plan(x, SimulateOptions(**EFFORT))),
    ("simulate", "simulate", EFFORT | {"repair": True}, lambda x: repair_plan(x, EffortOptions(**EFFORT))),
    ("report", "report", {}, make_report),
    ("report", "report", {"batch_sizing": "optimal"}, lambda x: make_report(optimal(x))),
    ("report", "report", EFFORT | {"simulate": True}, lambda x: make_report(x, effort=Effort(600, seed=4))),
    (
        "plot latency",
        "figure",
        {"server": "s", "accelerator": "B"},
        lambda x: make_figure(x, "latency", server="s", accelerator="B"),
    ),
    ("plot plan", "figure", {"scale": 2}, lambda x: make_figure(scale_loads(x, 2.0), "plan", before=x)),
    ("sweep", "sweep", SWEPT, lambda x: sweep_system(x, SweepOptions(**SWEPT | {"vary": ("load=1..3/3",)}))),
    ("horizon", "horizon", {"factors": [0.5, 1, 2]}, lambda x: horizon_of(x, HOURS)),
]
BY_COMMAND = [list(cases) for _, cases in groupby(CASES, key=itemgetter(0))]
FIRST = [cases[0] for cases in BY_COMMAND]
MORE = [case for cases in BY_COMMAND for case in cases[1:]]


def flags(given: Given) -> list[object]:
    """Return the flags of a command that ask what a query asks."""
    found: list[object] = []
    for name, value in given.items():
        if isinstance(value, bool):
            named = "limited" if (name, value) == ("unlimited", False) else name
            found.append(f"--{named}")
        else:
            found += [
                f"--{name.replace('_', '-')}",
                ",".join(map(str, value)) if isinstance(value, list) else value,
            ]
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(("command", "route", "given", "library"), mostly_slow([*FIRST, *MORE], len(FIRST)))
def test_command_route_and_library_give_the_same_answer(
    run: Run,
    service: TestClient,
    tmp_path: Path,
    command: str,
    route: str,
    given: Given,
    library: Callable[[System], Any],
) -> None:
    found = library(load_system(SOURCE))
    wanted = json.loads(found.to_json() if hasattr(found, "to_json") else json.dumps(found.to_wire()))
    (tmp_path / "system.json").write_text(json.dumps(SOURCE))
    answer = run(*command.split(), tmp_path / "system.json", *flags(given), "--json")
    assert (answer.status, answer.errors) == (0, "")
    kind = {"kind": command.split()[1]} if route == "figure" else {}
    served = service.post(f"/v1/{route}", params=given | kind, json=SOURCE)
    assert served.status_code == 200, served.text
    assert answer.json == served.json()
    assert served.json() | {"warnings": []} == wanted | {"warnings": []}  # Python has those of plans only
    if hasattr(found, "to_json"):
        assert answer.out.removesuffix("\n") == served.text
