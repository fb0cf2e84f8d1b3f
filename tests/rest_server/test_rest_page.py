"""The page about REST: its examples are run, one after the other, and it names every route and setting.

Routes without an example on the page have one in ``tests/data/rest_requests.md``; these run afterwards.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from api_clients import client
from fastapi.testclient import TestClient

from rest_server.compat.compat_routes import wire_router
from rest_server.settings import Settings
from rest_server.state import FleetStore
from rest_server.v1 import examples

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
MORE = (ROOT / "tests" / "data" / "rest_requests.md").read_text(encoding="utf-8")
ANY = "…"


class Example(NamedTuple):
    """A request as the page shows it, and the answer that it promises."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str
    status: int
    answer_headers: Mapping[str, str]
    answer: str


def written_out(body: str) -> str:
    """Return a body with the documents in place of their names."""
    for name in ("SYSTEM", "REPLICA", "WRAPPED"):
        body = body.replace(name, json.dumps(getattr(examples, name)))
    return body


def parts(block: str) -> tuple[str, dict[str, str], str]:
    """Return the first line, the headers and the body of a message."""
    head, _, body = block.strip().partition("\n\n")
    first, *lines = head.splitlines()
    return first, dict(line.split(": ", 1) for line in lines), body


def blocks(text: str) -> Iterator[tuple[int, Example]]:
    """Yield requests with the answers that follow them, and where they stand."""
    found = re.finditer(r"```http\n(?!HTTP)(.*?)```\s+```http\n(HTTP.*?)```", text, re.DOTALL)
    for pair in found:
        (asked, headers, body), (line, answer_headers, answer) = parts(pair[1]), parts(pair[2])
        method, path = asked.split()
        yield (
            pair.start(),
            Example(method, path, headers, written_out(body), int(line.split()[1]), answer_headers, answer),
        )


def rows(text: str) -> Iterator[tuple[int, Example]]:
    """Yield the rows of the tables of requests in a text, and where they stand."""
    pattern = r"^\| `(GET|POST|PUT|DELETE) (\S+)` \| (?:`(.*?)`)? \| (\d+) \| `(.*)` \|$"
    for row in re.finditer(pattern, text, re.MULTILINE):
        yield row.start(), Example(row[1], row[2], {}, written_out(row[3] or ""), int(row[4]), {}, row[5])


EXAMPLES = [example for text in (PAGE, MORE) for _, example in sorted((*blocks(text), *rows(text)))]


@pytest.fixture(scope="module")
def service() -> Iterator[TestClient]:
    with client(stateful=True, queue_at_root=True) as found:
        found.app.state.held = FleetStore(instance="4f2a91c0")  # type: ignore[attr-defined]
        yield found


def fits(found: Any, shown: Any) -> bool:
    """Say whether a value is the one that the page shows, as far as it shows it."""
    if shown == ANY:
        return True
    if isinstance(shown, dict) and isinstance(found, dict):
        named = shown.keys() - {ANY}
        complete = ANY in shown or named == found.keys()
        return complete and named <= found.keys() and all(fits(found[key], shown[key]) for key in named)
    if isinstance(shown, list) and isinstance(found, list):
        first = shown[:-1] if shown[-1:] == [ANY] else shown
        whole = len(first) == len(found) if first is shown else len(first) <= len(found)
        return whole and all(fits(*pair) for pair in zip(found, first, strict=False))
    if isinstance(shown, float) and isinstance(found, float):
        return found == pytest.approx(shown, rel=1e-6, abs=1e-9)
    return type(found) is type(shown) and bool(found == shown)


def cells(text: str) -> list[list[str | float]]:
    """Return the cells of a CSV, numbers as numbers."""

    def cell(value: str) -> str | float:
        return float(value) if re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", value) else value

    return [[cell(value) for value in row] for row in csv.reader(text.splitlines())]


@pytest.mark.slow
def test_the_examples_are_answered_as_the_page_shows(service: TestClient) -> None:
    for example in EXAMPLES:  # one test, as later ones build on the fleet of earlier ones
        content = example.body.encode() or None
        answer = service.request(example.method, example.path, content=content, headers=example.headers)
        seen = f"{example.method} {example.path}: {answer.status_code} {answer.text}"
        assert answer.status_code == example.status, seen
        for name, value in example.answer_headers.items():
            assert answer.headers[name] == value, (name, seen)
        if answer.headers.get("content-type", "").partition(";")[0].endswith("json"):
            assert fits(answer.json(), json.loads(example.answer)), seen
        elif example.answer == ANY:
            assert answer.text, seen
        elif answer.headers.get("content-type", "").startswith("text/csv"):
            assert fits(cells(answer.text), cells(example.answer)), seen
        else:
            assert answer.text == example.answer, seen


@pytest.mark.slow
def test_every_route_has_an_example(service: TestClient) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    wanted = {(method.upper(), path) for path, item in paths.items() for method in item}
    for stateful in (False, True):
        for route in wire_router(stateful=stateful).routes:
            wanted |= {(method, route.path) for method in route.methods}  # type: ignore[attr-defined]
    wanted |= {("POST", f"/queue/{name}") for name in ("solve", "target", "optimize")}
    missing = [
        f"{method} {path}"
        for method, path in wanted
        if not any(
            example.method == method
            and re.fullmatch(re.sub(r"\{.*?\}", "[^/]+", path), example.path.partition("?")[0])
            for example in EXAMPLES
        )
    ]
    assert not missing


def test_the_page_names_every_route_of_llm_inferno() -> None:
    routes = [route for stateful in (False, True) for route in wire_router(stateful=stateful).routes]
    paths = {route.path for route in routes}  # type: ignore[attr-defined]
    assert {path for path in paths if f" {path}`" not in PAGE} == set()


def test_the_page_names_every_setting() -> None:
    for name in Settings.model_fields:
        assert f"`INFERPLAN_{name.upper()}`" in PAGE
