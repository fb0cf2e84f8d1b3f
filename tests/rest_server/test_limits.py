"""What a request may be: the size of its body and of its system; its id, its time and its line in the log."""

import logging
import threading
from typing import Any

import pytest
from patience import until
from service_runs import connected, in_a_thread
from wire_client import CLASSES, MODELS, one_server, system, wire_client

from optimizer.errors import SpecError
from optimizer.schema.files import spec_from_value
from rest_server.limits import check_size
from rest_server.settings import Settings


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ({"max_servers": 1}, "servers: 2 items exceed the limit of 1 .*INFERPLAN_MAX_SERVERS"),
        ({"max_accelerators": 1}, "accelerators: 2 items"),
        ({"max_profiles": 1}, "models: 2 items"),
        ({"max_models": 1}, "models: 2 different models"),
        ({"max_batch": 7}, r"models\[0\].maxBatchSize: 8 requests exceed the limit of 7"),
        ({"max_batch": 8}, r"servers\[1\].maxBatchSize: 9 requests"),
    ],
)
def test_a_system_over_a_limit_is_refused_with_path_and_limit(limit: dict[str, int], problem: str) -> None:
    accelerators = [{"name": name, "type": name} for name in "AB"]
    document = {
        "accelerators": accelerators,
        "models": [MODELS[0], MODELS[0] | {"name": "n"}],
        "serviceClasses": CLASSES,
        "servers": [one_server("s"), one_server("t", maxBatchSize=9)],
    }
    spec = spec_from_value(document)
    check_size(spec, Settings())
    with pytest.raises(SpecError, match=problem):
        check_size(spec, Settings.model_validate(limit))


def test_lists_that_features_add_are_limited_as_servers_are() -> None:
    kind = {"share": 1, "inTokens": 1, "outTokens": 1}
    routes = [{"name": name, "small": "s", "large": "t", "kinds": [kind]} for name in "ab"]
    with pytest.raises(SpecError, match=r"^routes: 2 items exceed the limit of 1 .*INFERPLAN_MAX_SERVERS"):
        check_size(spec_from_value({"routes": routes}), Settings(max_servers=1))


@pytest.mark.parametrize("path", ["/v1/plan", "/optimizeOne"])
def test_the_routes_hold_to_the_limits(path: str) -> None:
    with in_a_thread(max_servers=1) as here:
        answer = here.ask("POST", path, system(one_server("a"), one_server("b")))
        assert 400 <= answer.status < 500
        assert "2 items exceed the limit of 1" in answer.text


@pytest.mark.parametrize("path", ["/v1/plan", "/optimizeOne", "/queue/solve"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413_also_without_a_length(path: str, chunked: bool) -> None:  # noqa: FBT001
    with in_a_thread(max_body_bytes=100_000) as here:
        body: Any = iter([b" " * 50_000] * 5) if chunked else b" " * 250_000
        answer = here.ask("POST", path, body)
        assert answer.status == 413
        assert "over the limit of 100,000 bytes" in answer.text
        assert here.ask("POST", path, b" " * 100_000).status in {400, 422}


def test_who_asks_before_sending_too_much_is_refused_before() -> None:
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n"
    with in_a_thread() as here, connected(here.port, head + b"Expect: 100-continue\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_stalls_is_408() -> None:
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with in_a_thread(request_timeout_s=0.2) as here, connected(here.port, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


STALLED = b"Content-Length: 10\r\n\r\n{"
TOO_LARGE = b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n%b\r\n" % (b" " * 1024) * 9


@pytest.mark.slow
@pytest.mark.parametrize(("body", "status"), [(STALLED, b"408"), (TOO_LARGE, b"413")])
def test_an_unread_body_is_refused_while_work_runs(body: bytes, status: bytes) -> None:
    events = {"a": threading.Event()}
    sent = b"GET /v1/wait/a HTTP/1.1\r\nHost: localhost\r\n" + body
    limits = {"body_timeout_s": 0.2, "max_body_bytes": 4096}
    with in_a_thread(events, **limits) as here, connected(here.port, sent) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status)
        events["a"].set()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/plan", "/v1/fleet/explain", "/optimizeOne", "/queue/solve"])
def test_a_client_that_leaves_within_its_body_is_logged_as_gone(
    caplog: pytest.LogCaptureFixture, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nX-Request-ID: gone\r\n\r\n{{"
    with caplog.at_level(logging.INFO), in_a_thread(stateful=True) as here:
        connected(here.port, head.encode()).close()
        until(lambda: bool(access_lines(caplog)))
    assert [(line["requestId"], line["status"]) for line in access_lines(caplog)] == [("gone", 499)]


def access_lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Return the lines of the log about requests."""
    return [record.__dict__["fields"] for record in caplog.records if record.name == "inferplan.access"]


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1", True), ("a b", False), ("x" * 129, False), ("", False)]
)
def test_an_answer_has_the_id_of_its_request_or_a_new_one(given: str, kept: bool) -> None:  # noqa: FBT001
    answer = wire_client().get("/v1/none", headers={"X-Request-ID": given})
    assert (answer.headers["x-request-id"] == given) is kept
    assert answer.json()["requestId"] == answer.headers["x-request-id"]


def test_a_request_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), in_a_thread() as here:
        answer = here.ask("POST", "/optimizeOne?secret=1", system(one_server()), X_Request_ID="mine")
        stages = [part.partition(";")[0] for part in answer.headers["server-timing"].split(", ")]
        assert stages == ["wait", "work", "total"]
    lines = access_lines(caplog)
    assert len(lines) == 1
    times = {name: lines[0].pop(name) for name in ("ms", "waitMs", "workMs")}
    assert all(value >= 0 for value in times.values())
    wanted = {"method": "POST", "path": "/optimizeOne", "status": 200, "requestId": "mine"}
    assert lines[0] == wanted | {"client": "127.0.0.1"}
