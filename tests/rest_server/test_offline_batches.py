"""Offline batches at the router of an emulated fleet: submit, status, callback, deadline, cancel."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from emulated import FLEET, Emulator
from patience import until

DOCUMENT = FLEET + (
    "  - {name: nightly, class: Interactive, model: vision, deadline: {requests: 3600, hours: 2},\n"
    "     batchTimeout: 10 ms}\n"
)
PREDICT = {"endpoint": "/predict", "server": "nightly"}
COMPLETE = {
    "endpoint": "/v1/completions",
    "server": "talk",
    "requests": [{"prompt": "a b", "max_tokens": 3, "ignore_eos": True}],
}


def status_of(fleet: Emulator, batch: dict[str, Any]) -> Any:
    return fleet.ask(f"/v1/batches/{batch['id']}").json


def is_over(fleet: Emulator, batch: dict[str, Any]) -> bool:
    return bool(status_of(fleet, batch)["status"] != "in_progress")


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """Listen for callbacks."""
    found: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/done", found
        server.shutdown()
        thread.join()


def test_batch_runs_to_its_end_and_calls_back(fleet: Emulator) -> None:
    with receiver() as (url, found):
        batch = fleet.ask("/v1/batches", PREDICT | {"count": 8, "callback": url}).json
        assert (batch["status"], batch["deadline"]) == ("in_progress", 7200)  # that of the document
        until(lambda: bool(found))
    assert found[0]["id"] == batch["id"]
    assert (found[0]["status"], found[0]["request_counts"]["completed"]) == ("completed", 8)
    # Two at a time in 200 ms on one replica, at least.
    assert found[0]["seconds"] > 8 / 2 / len(fleet.replicas_of("nightly")) * 0.2 - 0.01
    until(lambda: status_of(fleet, batch)["called_back"])
    listed = fleet.ask("/v1/batches").json["data"]
    assert batch["id"] in {one["id"] for one in listed}
    assert f'batch="{batch["id"]}",result="completed"}} 8' in fleet.ask("/metrics").text


def test_full_queue_delays_a_batch_and_fails_none(fleet: Emulator) -> None:
    # Two replicas with two slots and a place to wait each; twice the slots are sent at once.
    batch = fleet.ask("/v1/batches", COMPLETE | {"count": 30}).json
    until(partial(is_over, fleet, batch))
    found = status_of(fleet, batch)
    assert (found["status"], found["request_counts"]) == (
        "completed",
        {"total": 30, "completed": 30, "failed": 0},
    )


def test_deadline_and_cancel_end_a_batch(fleet: Emulator) -> None:
    late = fleet.ask("/v1/batches", PREDICT | {"count": 500, "deadline": 0.5}).json
    until(partial(is_over, fleet, late))
    found = status_of(fleet, late)
    assert (found["status"], found["seconds"]) == ("expired", pytest.approx(0.5, abs=0.4))
    assert found["request_counts"]["completed"] < 500
    long = fleet.ask("/v1/batches", PREDICT | {"count": 500}).json
    assert fleet.ask(f"/v1/batches/{long['id']}/cancel", {}).json["status"] == "cancelled"
    assert fleet.ask(f"/v1/batches/{long['id']}/cancel", {}).json["status"] == "cancelled"


@pytest.mark.slow
def test_wrong_requests_of_a_batch_are_counted(fleet: Emulator) -> None:
    wrong = COMPLETE | {
        "requests": [{"prompt": []}, COMPLETE["requests"][0]],
        "callback": "http://127.0.0.1:9",
    }
    batch = fleet.ask("/v1/batches", wrong).json
    until(partial(is_over, fleet, batch))
    assert status_of(fleet, batch)["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    nobody = fleet.ask("/v1/batches", COMPLETE | {"server": "none"}).json
    until(partial(is_over, fleet, nobody))
    assert status_of(fleet, nobody)["request_counts"]["failed"] == 1
    until(lambda: status_of(fleet, batch)["called_back"] is False)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"endpoint": "/none"}, "endpoint: must be a path"),
        ({"requests": []}, "requests: must be a list"),
        ({"count": 0}, "count: must be an integer from 1 to 1,000,000"),
        ({"deadline": -1}, "deadline: must be a number of seconds"),
        ({"callback": "ftp://x"}, "callback: must look like"),
    ],
)
def test_wrong_batches_are_named(fleet: Emulator, more: dict[str, Any], text: str) -> None:
    answer = fleet.ask("/v1/batches", PREDICT | more)
    assert (answer.status, text in answer.text) == (400, True)
    assert fleet.ask("/v1/batches/batch_0").status == 404
