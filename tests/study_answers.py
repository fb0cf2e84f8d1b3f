"""Answers of a program with one more study: run in a copy of the tree, by `test_a_new_study`."""

import asyncio
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from reference_page import generated
from service_runs import in_a_thread

import optimizer
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.jobs.cost_at_load import CostAtLoadOptions, cost_at_load  # in the copy
from rest_server.client import FLEET, AsyncClient, Client

NAME = "cost_at_load"


def printed(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(arguments))
        except SystemExit as left:
            status = int(left.code or 0)
    return status, out.getvalue(), err.getvalue()


def over_http(source: dict[str, Any]) -> dict[str, Any]:
    options = CostAtLoadOptions(factor=3.0)
    with in_a_thread(stateful=True) as service:
        url = f"http://127.0.0.1:{service.port}"
        with Client(url) as client, httpx.Client(base_url=url, timeout=60.0) as plain:
            client.import_fleet(source)
            answers = [client.cost_at_load(source, options), client.cost_at_load(FLEET, options)]  # type: ignore[attr-defined]
            routes = [
                plain.post(f"/v1/{NAME}?factor=3", json=source),
                plain.post(f"/v1/fleet/{NAME}?factor=3"),
            ]
            refused = plain.post(f"/v1/{NAME}?factor=0", json=source)
            paths = plain.get("/openapi.json").json()["paths"]

        async def awaited() -> Any:
            async with AsyncClient(url) as other:
                return await other.cost_at_load(source, options)  # type: ignore[attr-defined]

        answers.append(asyncio.run(awaited()))
    operation = paths[f"/v1/{NAME}"]["post"]
    return {
        "clients": [json.loads(answer.to_json()) for answer in answers],
        "routes": [answer.json() for answer in routes],
        "refusal": [refused.status_code, refused.json()["detail"]],
        "summary": [operation["summary"], paths[f"/v1/fleet/{NAME}"]["post"]["summary"]],
        "described": {item["name"]: item["description"] for item in operation["parameters"]}["factor"],
    }


def refused_path(path: str) -> str:
    """Return the message for a path in place of a system."""
    try:
        cost_at_load(path, CostAtLoadOptions())
    except SpecError as error:
        return str(error)
    return ""


def answers(path: str, page: str) -> dict[str, Any]:
    source = json.loads(Path(path).read_text(encoding="utf-8"))
    found = generated(Path(page).read_text(encoding="utf-8"))
    return {
        "home": str(Path(optimizer.__file__).parent),
        "json": json.loads(printed(NAME, path, "--factor", "3", "--json")[1]),
        "table": printed(NAME, path, "--factor", "3")[1],
        "csv": printed(NAME, path, "--csv")[1],
        "help": printed("--help")[1],
        "refused path": refused_path(path),
        "wrong": printed(NAME, path, "--factor", "0"),
        "page": found[found.index(f"### {NAME}") :][:5000],
        **over_http(source),
    }


if __name__ == "__main__":
    print(json.dumps(answers(*sys.argv[1:])))
