"""The state file: what was acknowledged is there after a restart, and files of others are left alone."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, running, server
from commands import Run, is_one_line
from fastapi.testclient import TestClient

from optimizer import solve
from optimizer.errors import SpecError
from optimizer.schema import Accelerator, AllocationData, Capacity, CurrentPool, Route
from optimizer.schema.files import spec_from_value
from rest_server import state_rows
from rest_server.app import create_app
from rest_server.compat.entities import ACCELERATORS, add_model
from rest_server.fleet import Entities, desired_allocations
from rest_server.journal import StateNotWrittenError
from rest_server.settings import Settings
from rest_server.state import FleetStore
from rest_server.state_file import open_state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


def fleet() -> Entities:
    source = document(
        [server("s", current=running("A", 1)), server("t")], [accelerator("B"), accelerator("A")], {"A": 9}
    )
    source["accelerators"][0]["cost"] = "$2.50/h"
    return Entities.of(spec_from_value(source))


def reopened(held: FleetStore, path: Path) -> FleetStore:
    held.close()
    return open_state(path)


def content(path: Path) -> dict[str, str]:
    """Return a digest of every file beside a state file, and itself."""
    return {
        item.name: hashlib.sha256(item.read_bytes()).hexdigest() for item in sorted(path.parent.iterdir())
    }


def test_a_restored_fleet_keeps_order_revision_tag_and_plan(path: Path) -> None:
    held = made(path)
    revision, entities = held.read()
    plan = solve(entities.system())
    held.keep_plan(plan, desired_allocations(plan, entities.servers), revision)
    before, tag = held.snapshot(), held.etag(7)
    after = reopened(held, path).snapshot()
    assert after == before
    assert list(after.entities.accelerators) == ["B", "A"]
    assert str(after.entities.accelerators["B"].cost_cents_per_h) == "2.50 USD/h"
    assert after.plan is not None
    assert after.plan.plan == plan
    assert after.plan.made_at <= time.time()
    assert tag.endswith('-7"')
    with pytest.raises(SpecError, match="in use by another service"):
        open_state(path)


def test_tags_go_on_where_they_stopped(path: Path) -> None:
    held = made(path)
    tag = held.etag(1)
    again = reopened(held, path)
    assert again.etag(again.read()[0]) == tag
    again.close()


def route(name: str, **more: object) -> Route:
    """Return a route; its servers need not be there."""
    kind = {"share": 1, "inTokens": 8, "outTokens": 8}
    return Route.model_validate({"name": name, "small": "s", "large": "t", "kinds": [kind], **more})


def steps() -> Iterator[Any]:
    """Yield changes that move, replace, add and remove items of every kind."""
    yield lambda _: fleet()
    yield lambda now: replace(now, accelerators={k: now.accelerators[k] for k in ("A", "B")})
    yield lambda now: replace(now, servers={k: v for k, v in now.servers.items() if k != "s"})
    yield lambda now: replace(now, count={"Z": Capacity(type="Z", count=3), **now.count})
    yield lambda now: add_model(now, "bare")[0]
    yield lambda now: replace(now, models={"x": {}, **now.models})
    yield lambda now: replace(now, models={**now.models, "m": dict(list(now.models["m"].items())[::-1])})
    yield lambda now: replace(now, models={**now.models, "bare": {"A": now.models["m"]["A"]}})
    yield lambda now: ACCELERATORS.add({"name": "plain", "cost": 4}, [])(now)[0]
    yield lambda now: replace(now, optimizer=now.optimizer.model_copy(update={"unlimited": True}))
    yield lambda now: replace(now, models={})
    yield lambda now: replace(now, routes={"r": route("r"), "q": route("q")})
    yield lambda now: replace(now, routes={"q": route("q", arrivalRate=7), "p": route("p")})
    yield lambda _: Entities()
    yield lambda _: fleet()


def test_every_change_of_every_kind_is_there_again(path: Path) -> None:
    held = open_state(path)
    for step in steps():
        held.update(step)
        before = held.snapshot()
        held = reopened(held, path)
        after = held.snapshot()
        assert after == before
        assert after.entities.spec().model_dump_json() == before.entities.spec().model_dump_json()
        assert list(after.entities.models) == list(before.entities.models)
        for model, profiles in before.entities.models.items():
            assert list(after.entities.models[model]) == list(profiles)
        for name, item in before.entities.accelerators.items():
            assert after.entities.accelerators[name].model_fields_set == item.model_fields_set
    held.close()


def test_desired_replicas_can_cost_more_than_a_document_allows(path: Path) -> None:
    held = made(path)
    pools = (
        CurrentPool.model_construct(accelerator="A", num_replicas=2, cost_cents_per_h=1e300),
        CurrentPool(accelerator="B", num_replicas=1),
    )
    dear = AllocationData.model_construct(
        accelerator="A", num_replicas=2, cost_cents_per_h=1e300, pools=pools
    )
    held.update(lambda now: now.with_desired({"s": dear}))
    found = reopened(held, path)
    assert found.read()[1].servers["s"].desired == dear
    found.close()


def test_a_fleet_sent_with_a_request_is_journalled_at_once(path: Path) -> None:
    held = open_state(path)
    plan = solve(fleet().system())
    held.replace(lambda: (fleet(), plan))
    found = reopened(held, path)
    assert found.read() == (1, fleet())
    assert found.plan is not None
    assert found.plan.plan == plan
    found.close()


def test_the_history_is_bounded_and_survives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rest_server.history", "rest_server.journal"):
        monkeypatch.setattr(f"{module}.MAX_EVENTS", 5)
    monkeypatch.setattr("rest_server.history.MAX_PLANS", 2)
    held = made(path)
    plan = solve(fleet().system())
    for _ in range(4):
        held.keep_plan(plan, {}, held.read()[0])
    history = held.snapshot().history
    assert [event.cause for event in history.events] == ["change", *["plan"] * 4]
    assert (len(history.plans), history.plans[-1].plan()) == (2, plan)
    held.update(lambda now: replace(now, count={"A": Capacity(type="A", count=1)}))
    found = reopened(held, path)
    assert found.snapshot().history == held.snapshot().history
    assert [event.revision for event in found.snapshot().history.events] == [2, 3, 4, 5, 6]
    assert found.snapshot().history.events[-1].names == ("count/A",)
    found.close()


# --- files that are refused ---------------------------------------------------------------------------------


def refused(path: Path, problem: str) -> None:
    before = content(path) if path.parent.is_dir() else {}
    with pytest.raises(SpecError, match=problem) as caught:
        open_state(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"--state {path}: ")
    if before:
        assert content(path) == before


def made(path: Path) -> FleetStore:
    """Return an open state file with a fleet."""
    held = open_state(path)
    held.update(lambda _: fleet())
    return held


def test_files_of_other_programs_are_refused_and_left_alone(path: Path) -> None:
    path.write_text("a text that somebody needs\n" * 9)
    refused(path, "not a state file of inferplan")
    path.write_bytes(b"SQLite format 3\x00")
    refused(path, "not a state file")
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE kept (thing TEXT)")
    other.close()
    refused(path, "of another program")


def test_a_file_of_a_newer_version_is_refused_and_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("rest_server.state_file.SCHEMA_VERSION", state_rows.SCHEMA_VERSION + 1)
        made(path).close()
    refused(path, "version 3 .*newer inferplan")


def test_a_file_of_an_older_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr("rest_server.state_file.SCHEMA_VERSION", 1)
        made(path).close()
    refused(path, "version 1 of state files, whose plans an older inferplan wrote; .* plan again")


@pytest.mark.parametrize("damage", ["page", "document", "row", "short"])
def test_a_damaged_file_is_refused_and_left_alone(path: Path, damage: str) -> None:
    made(path).close()
    if damage in {"document", "row"}:
        with sqlite3.connect(path) as connection:
            change = {
                "document": "UPDATE items SET document = '{\"name\": 1}' WHERE section = 'servers'",
                "row": "DELETE FROM fleet",
            }[damage]
            connection.execute(change)
        connection.close()
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if damage == "short" else whole[:5000] + b"\xff" * 9000)
    refused(path, "damaged")


def test_a_place_that_cannot_be_used_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(SpecError, match="directory"):
        open_state(path)
    refused(path / "no" / "where", "no such file or directory")


def test_the_service_says_so_in_one_line_and_ends_with_2(run: Run, path: Path) -> None:
    path.write_text("something else")
    is_one_line(run("serve", "--stateful", "--state", path, "--port", "0"), "not a state file")
    is_one_line(run("serve", "--state", path), "without --stateful")


# --- what cannot be written -----------------------------------------------------------


def connection_of(held: FleetStore) -> sqlite3.Connection:
    journal: Any = held._journal
    connection: sqlite3.Connection = journal._connection
    return connection


def test_a_full_disk_changes_neither_memory_nor_file_and_passes(path: Path) -> None:
    held = made(path)
    pages = connection_of(held).execute("PRAGMA page_count").fetchone()[0]
    connection_of(held).execute(f"PRAGMA max_page_count={pages}")
    before = held.snapshot()
    more = {f"a{i}": Accelerator(name=f"a{i}", type="x" * 200) for i in range(900)}
    with pytest.raises(StateNotWrittenError, match="full") as caught:
        held.update(lambda now: replace(now, accelerators={**now.accelerators, **more}))
    assert caught.value.http_status == 507
    assert held.snapshot() is before
    connection_of(held).execute("PRAGMA max_page_count=100000")
    held.update(lambda now: replace(now, accelerators={**now.accelerators, **more}))
    after = held.snapshot()
    found = reopened(held, path)
    assert found.snapshot() == after
    found.close()


@pytest.mark.slow
def test_a_read_only_file_is_served_and_not_changed(path: Path) -> None:
    made(path).close()
    app = create_app(Settings(stateful=True, state=path, solver_processes=0))
    connection = sqlite3.connect(path)  # nothing is open for writing yet
    connection.close()
    with TestClient(app, "http://localhost") as client:
        assert client.put("/v1/capacity/A", json={"count": 1}).status_code == 200
        connection_of(app.state.held).execute("PRAGMA query_only=ON")
        before = client.get("/v1/fleet")
        for _ in range(2):
            answer = client.put("/v1/capacity/A", json={"count": 2})
            assert answer.status_code == 503
            assert "cannot be written: attempt to write a readonly database" in answer.json()["detail"]
            assert "Retry-After" in answer.headers
        answer = client.post("/setCapacity", json={"type": "A", "count": 2})
        assert (answer.status_code, "readonly" in answer.json()["message"]) == (503, True)
        after = client.get("/v1/fleet")
        assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    found = open_state(path)
    assert found.read()[1].capacity["A"] == 1
    found.close()


def test_a_file_that_is_gone_or_replaced_is_not_written_to(path: Path) -> None:
    held = made(path)
    path.rename(path.with_suffix(".old"))
    with pytest.raises(StateNotWrittenError, match="gone or replaced"):
        held.update(lambda _: Entities())
    made(path).close()
    with pytest.raises(StateNotWrittenError, match="gone or replaced"):
        held.update(lambda _: Entities())
    assert held.read() == (1, fleet())
    held.close()


def test_a_file_that_another_service_wrote_is_not_overwritten(path: Path) -> None:
    held = open_state(path)
    held.close()
    made(path).close()
    with pytest.raises(StateNotWrittenError, match="at revision 1, not 0"):
        held.update(lambda _: fleet())
    held.close()


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_nobody_else_may_read_the_file(path: Path) -> None:
    made(path).close()
    assert path.stat().st_mode & 0o077 == 0
