"""The public API: pinned, sorted, importable name by name, and cheap to import."""

import doctest
import importlib
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT

import optimizer
from optimizer import SpecError, jobs

HEAVY = (
    "numpy",
    "scipy",
    "pydantic",
    "highspy",
    "pulp",
    "yaml",
    "rich",
    "matplotlib",
    "jinja2",
    "fastapi",
    "asyncio",
    "pandas",
    "httpx2",
)

PINNED = [
    "AnalysisError",
    "CandidateTable",
    "Candidates",
    "Comparison",
    "Explanation",
    "Figure",
    "FitError",
    "FittedProfile",
    "Horizon",
    "IncompletePlanError",
    "InferplanError",
    "LatencyTargets",
    "MissingExtraError",
    "Plan",
    "Pool",
    "ProfileEstimate",
    "Rejection",
    "RepairedPlan",
    "Replica",
    "ReplicaPerformance",
    "ReplicaSizing",
    "Report",
    "Simulation",
    "SizingMemo",
    "SolverError",
    "SpecError",
    "Sweep",
    "System",
    "SystemSpec",
    "Timings",
    "Unserved",
    "analyze_replicas",
    "compare",
    "draw",
    "estimate",
    "explain",
    "find_candidates",
    "fit",
    "horizon",
    "load_plan",
    "load_system",
    "make_figure",
    "make_report",
    "render_report",
    "repair",
    "scale_loads",
    "simulate",
    "size_replicas",
    "solve",
    "sweep",
    "to_text",
    "vary_loads",
    "verify",
]


def test_the_public_names_are_these() -> None:
    assert optimizer.__all__ == PINNED


def test_the_public_names_are_sorted_and_distinct() -> None:
    assert sorted(set(optimizer.__all__)) == optimizer.__all__


@pytest.mark.parametrize("name", PINNED)
def test_every_public_name_is_importable_and_documented(name: str) -> None:
    found = getattr(optimizer, name)
    assert found.__name__ == name
    assert found.__doc__
    assert found is getattr(importlib.import_module(found.__module__), name)


def test_dir_lists_what_is_public_whether_loaded_or_not() -> None:
    program = "import optimizer; print(dir(optimizer) == sorted(optimizer.__all__))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout == "True\n"
    assert dir(optimizer) == PINNED


@pytest.mark.slow
def test_a_package_without_sources_plans(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "optimizer", tmp_path / "optimizer", ignore=shutil.ignore_patterns("__pycache__"))
    compiled = [sys.executable, "-m", "compileall", "-b", "-q", "optimizer"]
    subprocess.run(compiled, cwd=tmp_path, check=True)
    for source in (tmp_path / "optimizer").rglob("*.py"):
        source.unlink()
    solved = [sys.executable, "-m", "optimizer", "solve", str(ROOT / "specs/small"), "--json"]
    found = subprocess.run(solved, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["status"] == "optimal"


def public_functions() -> Iterator[Any]:
    """Yield all public functions of `optimizer` and of its jobs."""
    homes = [optimizer] + [
        importlib.import_module(f"optimizer.jobs.{item.name}") for item in pkgutil.iter_modules(jobs.__path__)
    ]
    for home in homes:
        for name in dir(home):
            found = getattr(home, name)
            is_own = home is optimizer or getattr(found, "__module__", "") == home.__name__
            if inspect.isfunction(found) and is_own and not name.startswith("_"):
                yield found


@pytest.mark.parametrize("value", ["specs/small", Path("specs/small"), {}, [], None])
def test_a_path_in_place_of_a_system_gets_a_sentence(value: object) -> None:
    asked = set()
    for function in public_functions():
        for name, parameter in inspect.signature(function).parameters.items():
            classes = typing.get_args(parameter.annotation) or (parameter.annotation,)
            if optimizer.System not in classes or (value is None and type(None) in classes):
                continue
            with pytest.raises(SpecError, match=rf"^{function.__name__}: {name} must be a System") as caught:
                function(**{name: value})
            assert "load_system(" in str(caught.value)
            asked.add(function.__name__)
    assert asked >= {"solve", "explain", "compare", "verify", "make_report", "scale_loads", "simulate_plan"}


def test_a_plan_can_stand_for_a_system_only_where_it_may() -> None:
    system = optimizer.load_system({"servers": []})
    with pytest.raises(
        SpecError, match=r"^verify: plan must be a Plan, not a System; read it with load_plan"
    ):
        optimizer.verify(system, system)  # type: ignore[arg-type]
    plan = optimizer.solve(system)
    assert optimizer.compare(plan, plan).same
    with pytest.raises(SpecError, match=r"^solve: system must be a System, not a Plan"):
        optimizer.solve(plan)  # type: ignore[arg-type]


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'optimizer' has no attribute 'nothing'"):
        optimizer.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["optimizer", "optimizer.errors", "optimizer.cli", "rest_server"])
def test_importing_loads_no_heavy_module(module: str) -> None:
    program = f"import {module}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


def test_the_version_is_valid_and_used_by_the_build() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", optimizer.__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "optimizer/__init__.py"
    assert project["project"]["scripts"] == {"inferplan": "optimizer.__main__:main"}


def test_every_exception_is_of_one_tree_with_its_statuses() -> None:
    errors = {
        name: (getattr(optimizer, name).exit_code, getattr(optimizer, name).http_status)
        for name in PINNED
        if name.endswith("Error") and name != "InferplanError"
    }
    assert errors == {
        "AnalysisError": (2, 422),
        "FitError": (2, 422),
        "IncompletePlanError": (3, 409),
        "MissingExtraError": (2, 500),
        "SolverError": (4, 500),
        "SpecError": (2, 422),
    }
    assert all(issubclass(getattr(optimizer, name), optimizer.InferplanError) for name in errors)


def test_the_example_in_the_packages_docstring_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = doctest.testmod(optimizer)
    assert found.attempted == 3
    assert found.failed == 0
