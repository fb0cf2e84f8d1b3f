"""What a program that knows streams answers of a system: run in a copy of the tree, by `test_a_new_kind`.

Takes the system on standard input, gives JSON: from the library, and the same over HTTP.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

import optimizer
from optimizer import (
    System,
    compare,
    draw,
    explain,
    load_system,
    make_figure,
    make_report,
    render_report,
    solve,
    verify,
)
from optimizer.errors import AnalysisError
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from rest_server.app import create_app
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import backends, placements
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.settings import FleetSettings
from rest_server.settings import Settings

REQUESTS = 10_000
PICTURES = ("latency", "batch", "cost")
SERVER = "calls"


def from_the_library(source: dict[str, Any]) -> dict[str, Any]:
    system = load_system(source)
    plan = solve(system)
    false_plan = json.loads(plan.to_json())
    false_plan["allocations"][SERVER][0]["blocked"] /= 2
    simulated = simulate_plan(load_system(alone(source)), SimulateOptions(requests=REQUESTS))
    report = make_report(system)
    figures = [make_figure(system, kind, server=SERVER) for kind in PICTURES]
    return {
        "home": str(Path(optimizer.__file__).parent),
        "plan": json.loads(plan.to_json()),
        "problems": verify(plan, system),
        "found out": verify(type(plan).model_validate(false_plan), system),
        "simulation": json.loads(simulated.to_json()),
        "explanation": json.loads(explain(system).to_json()),
        "comparison": json.loads(compare(system).to_json()),
        "markdown": render_report(report, system, "markdown"),
        "markdown alone": markdown_of(load_system(alone(source))),
        "csv": render_report(report, system, "csv"),
        "pictures": {figure.title: len(draw(figure, "svg")) for figure in figures},
        "emulation": emulated(alone(source)),
        "notes": [figure.note for figure in figures],
    }


def markdown_of(system: System) -> str:
    return render_report(make_report(system), system, "markdown")


def emulated(source: dict[str, Any]) -> str:
    """Return the message of the emulator, which knows the kinds of the program only."""
    system = load_system(source)
    try:
        backends(
            system, placements(system, solve(system)), FleetSettings(), Histogram(LAG_S), "http://r{}".format
        )
    except AnalysisError as error:
        return str(error)
    return ""


def over_http(source: dict[str, Any]) -> dict[str, Any]:
    paths = ("plan", "explain", "compare", "report?format=markdown")
    with TestClient(create_app(Settings()), "http://localhost") as client:
        found = {path: client.post(f"/v1/{path}", json=source) for path in paths}
        simulated = client.post(f"/v1/simulate?requests={REQUESTS}", json=alone(source))
        picture = client.post(f"/v1/figure?kind=latency&server={SERVER}&format=svg", json=source)
        refused = client.post("/v1/plan", json=without_duration(source))
    return {
        "status": [answer.status_code for answer in (*found.values(), simulated, picture)],
        "plan": found["plan"].json(),
        "explanation": found["explain"].json(),
        "simulation": simulated.json(),
        "markdown": found["report?format=markdown"].text,
        "refusal": refused.json()["detail"],
    }


def alone(source: dict[str, Any]) -> dict[str, Any]:
    """Return the system with streams alone, for whose simulation nothing is compiled."""
    return source | {"servers": [server for server in source["servers"] if server["name"] == SERVER]}


def without_duration(source: dict[str, Any]) -> dict[str, Any]:
    """Return it without what its kind needs."""
    (server,) = alone(source)["servers"]
    return source | {"servers": [{key: server[key] for key in server if key != "streamDuration"}]}


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    print(json.dumps(from_the_library(given) | {"http": over_http(given)}))
