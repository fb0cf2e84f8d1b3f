"""`--headroom` and `--spare` of the commands that solve: those of a document that states the reserves."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from builders import Json, accelerator, document, server, service_class
from commands import Run, is_one_line
from fastapi.testclient import TestClient

from optimizer import compare, explain, load_system, solve
from rest_server.app import create_app
from rest_server.settings import Settings


@pytest.fixture
def fleet() -> Json:
    """Four servers, of which two state their reserves, and one is of a class that does."""
    servers = [
        server("a", 1500.0), server("b", 700.0, spareReplicas=0), server("c", 600.0, headroomShare=0.5),
        server("d", 600.0, service="tin"),
    ]  # fmt: skip
    classes = [service_class("gold"), service_class("tin", 2) | {"headroomShare": 0.1}]
    return document(servers, [accelerator("A")], {"A": 30}, classes=classes)


@pytest.fixture
def stated(fleet: Json) -> Json:
    """The same with 20 % headroom, and a spare replica of each server that does not state its own."""
    found = deepcopy(fleet)
    found["optimizer"] = found.get("optimizer", {}) | {"headroomShare": 0.2}
    for item in found["servers"]:
        item.setdefault("spareReplicas", 1)
    return found


@pytest.fixture
def path(fleet: Json, tmp_path: Path) -> Path:
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps(fleet))
    return file


@pytest.mark.slow
def test_flags_give_the_plan_of_a_document_with_the_reserves(run: Run, path: Path, stated: Json) -> None:
    plan, system = solve(load_system(stated)), load_system(stated)
    found = run("solve", path, "--headroom", "20%", "--spare", 1, "--json").json
    assert found == json.loads(plan.to_json())
    assert found != run("solve", path, "--json").json
    assert run("solve", path, "--headroom", 0.2, "--spare", 1, "--json").json == found
    explained = run("explain", path, "--headroom", "20%", "--spare", 1, "--json").json
    assert explained["plan"] == json.loads(explain(system).to_json())["plan"]
    assert {item["option"] for item in explained["wishes"]} == {"headroomShare", "spareReplicas"}


def test_both_sides_of_a_comparison_have_the_reserves(run: Run, path: Path, stated: Json) -> None:
    flags = ("--headroom", "20%", "--spare", 1, "--json")
    found = run("compare", path, *flags)
    assert found.out == compare(load_system(stated)).to_json() + "\n"
    other = run("compare", path, "--with-options", "headroomShare=0", *flags).json
    assert other["first"]["plan"] == json.loads(solve(load_system(stated)).to_json())


def test_routes_have_the_same_options(fleet: Json, stated: Json) -> None:
    with TestClient(create_app(Settings(solver_processes=0)), "http://localhost") as service:
        found = service.post("/v1/plan?headroom=0.2&spare=1", json=fleet)
        assert found.json() == json.loads(solve(load_system(stated)).to_json())
        assert service.post("/v1/plan?spare=-1", json=fleet).status_code == 422


def test_a_server_without_reserves_is_named(run: Run, specs: Path) -> None:
    is_one_line(
        run("solve", specs / "shared-cards.yaml", "--spare", 1), "servers on shared cards have no reserve"
    )
    is_one_line(run("solve", specs / "small", "--spare=-1"), "must be an integer, at least 0")
