"""The service as a program: how it starts, what it refuses, how it ends; and the form of its errors."""

import http.client
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import Run, is_one_line
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from patience import PATIENCE_S, until
from service_runs import ROOT, alive, as_a_program, connected, in_a_thread
from wire_client import one_server, slow_system, system

from optimizer.errors import SpecError
from rest_server.app import create_app, serve
from rest_server.errors import field_path
from rest_server.settings import Settings, load_settings


@pytest.mark.slow
def test_the_program_serves_logs_json_and_ends_well() -> None:
    with as_a_program(INFERPLAN_SOLVER_PROCESSES="1") as here, ThreadPoolExecutor(1) as client:
        here.until_ready()
        body = system(*(one_server(f"s{i}") for i in range(200)))
        answer = client.submit(here.ask, "POST", "/optimizeOne", body)
        while not here.ask("GET", "/readyz").json["running"] and not answer.done():
            pass
        status, lines = here.end()
        assert answer.result().status == 200
    assert status == 0
    asked = {line["path"] for line in lines if line["logger"] == "inferplan.access"}
    assert asked == {"/readyz", "/optimizeOne"}
    assert all({"time", "level", "message"} <= line.keys() for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_several_workers_serve_and_end_together(tmp_path: Path, number: signal.Signals) -> None:
    """They have the settings of the first and processes that solve, and finish what runs."""
    keys = tmp_path / "keys"
    keys.write_text("solve,read k\n", "utf-8")
    options = ("--workers", "2", "--api-keys", str(keys), "--queue")
    body = json.dumps(system(one_server())).encode()
    head = f"POST /optimizeOne HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: k\r\nContent-Length: {len(body)}\r\n"
    with as_a_program(*options, INFERPLAN_MAX_SERVERS="1", INFERPLAN_SOLVER_PROCESSES="1") as here:
        assert here.ask("GET", "/getServers").status == 401
        two = system(one_server("a"), one_server("b"))
        assert "limit of 1" in here.ask("POST", "/v1/plan", two, X_API_KEY="k").text
        assert here.ask("POST", "/solve", {}, X_API_KEY="k").status == 400
        assert here.ask("POST", "/v1/plan", body, X_API_KEY="k").status == 200
        pids = here.descendants()
        with connected(here.port, head.encode() + b"Expect: 100-continue\r\n\r\n") as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")  # its body is waited for
            here.process.send_signal(number)
            until(lambda: not here.accepts())
            connection.sendall(body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert here.process.wait(PATIENCE_S) == 0
        until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.slow
def test_workers_that_are_slow_to_start_serve_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(7)\n", "utf-8")
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    with as_a_program("--workers", "2", **environment) as here:
        assert here.ask("GET", "/healthz").status == 200
        assert b"died" not in here.log.read_bytes()


def test_host_and_port_options_precede_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load_settings().host, load_settings().port) == ("127.0.0.1", 8080)
    monkeypatch.setenv("INFERNO_HOST", "127.0.0.2")
    monkeypatch.setenv("INFERNO_PORT", "9000")
    assert (load_settings().host, load_settings().port) == ("127.0.0.2", 9000)
    monkeypatch.setenv("INFERPLAN_PORT", "9001")
    assert load_settings().port == 9001
    assert load_settings(port=9002).port == 9002


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("PORT", "x", 'INFERPLAN_PORT: must be an integer, not "x"'),
        ("WORKERS", "0", 'INFERPLAN_WORKERS: must be at least 1, not "0"'),
        ("METRIC_ALIASES", "a", "INFERPLAN_METRIC_ALIASES: must be 'inferno' or 'wva', not \"a\""),
        ("MAX_BATCH", "9" * 5000, "INFERPLAN_MAX_BATCH: must have fewer digits"),
    ],
)
def test_a_wrong_variable_is_named_with_value_and_limit(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(f"INFERPLAN_{variable}", value)
    with pytest.raises(SpecError) as error:
        load_settings()
    assert str(error.value).startswith(problem)


def test_settings_survive_the_way_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(host="::1", port=1, queue_at_root=True, api_key_files=(ROOT / "a", ROOT / "b"))
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--host", "::"], "other machines can reach this address and there are no API keys"),
        (["--host", ""], "--host: must not be empty"),
        (["--port", "70000"], "argument --port: '70000': must be an integer, at least 0 and at most 65,535"),
        (["--port", "x"], "argument --port: 'x': must be an integer"),
        (["--workers", "2", "-F"], "a stateful service holds its fleet in one process"),
        (["--workers", "0"], "argument --workers: '0': must be an integer, at least 1"),
        (["--protect-state"], "without --stateful there is no fleet"),
        (["--api-keys", "none"], "none: API keys cannot be read"),
        (["--host", "no such host", "--insecure"], "--host no such host --port 8080: "),
    ],
)
def test_a_bad_option_is_one_clear_line(run: Run, options: list[str], problem: str) -> None:
    is_one_line(run("serve", *options), problem)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERNO_PORT", "http")
    with pytest.raises(SpecError, match=r"INFERNO_PORT|INFERPLAN_PORT"):
        load_settings()


def test_an_address_in_use_is_one_clear_line() -> None:
    with in_a_thread() as here, pytest.raises(SpecError, match="address already in use"):
        serve(Settings(port=here.port))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_addresses_are_open_without_keys(host: str) -> None:
    Settings(host=host).check()


@pytest.mark.parametrize("host", ["::", "10.0.0.1", "planner.example"])
def test_other_addresses_need_keys_or_the_word_of_the_user(host: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--insecure"):
        Settings(host=host).check()
    Settings(host=host, insecure=True).check()
    Settings(host=host, api_key_files=(tmp_path,)).check()


def test_unknown_paths_and_methods_answer_as_the_reference_does() -> None:
    with in_a_thread() as here:
        for method, path in (("GET", "/nope"), ("DELETE", "/getServers"), ("GET", "/getServers//")):
            answer = here.ask(method, path)
            assert (answer.status, answer.text) == (404, "404 page not found")
            assert answer.headers["content-type"].startswith("text/plain")
        unknown = here.ask("GET", "/v1/nope")
        assert (unknown.status, unknown.json["title"]) == (404, "Not Found")
        wrong = here.ask("GET", "/v1/candidates")
        assert (wrong.status, wrong.json["title"]) == (405, "Method Not Allowed")


def test_an_unexpected_error_is_a_500_in_the_form_of_its_path() -> None:
    def broken() -> None:
        raise RuntimeError

    def teapot() -> None:
        raise HTTPException(418, "short and stout")

    with in_a_thread() as here:
        for path in ("/v1/broken", "/broken"):
            here.app.add_api_route(path, broken)
        here.app.add_api_route("/v1/pot", teapot)
        answer = here.ask("GET", "/v1/broken")
        assert (answer.status, answer.json["title"]) == (500, "Internal Server Error")
        assert set(here.ask("GET", "/broken").json) == {"message"}
        assert here.ask("GET", "/v1/pot").json["detail"] == "short and stout"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("servers[3].model: model 'x' does not exist", "servers[3].model"),
        ("servers.my server.load: bad", "servers.my server.load"),
        ("optimizer.gap: must be at most 1", "optimizer.gap"),
        ("body:1:2: not valid JSON: expecting a value", "body"),
        ("servers.a:b.load: bad", "servers.a:b.load"),
        ("rate 12.0 req/s exceeds: 9.8", None),
        ("the optimizer stopped", None),
        ("a b: c: unknown key; remove it or correct its spelling", "a b: c"),
    ],
)
def test_the_path_is_what_a_message_begins_with(message: str, path: str | None) -> None:
    assert field_path(message) == path


@pytest.mark.slow
def test_the_description_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FastAPI] = []
    real = FastAPI.openapi
    monkeypatch.setattr(FastAPI, "openapi", lambda app: made.append(app) or real(app))  # type: ignore[func-returns-value]
    with in_a_thread() as here, ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda _: here.ask("GET", "/openapi.json"), range(8)))
        assert {answer.text for answer in answers} == {answers[0].text}
        assert answers[0].json["openapi"].startswith("3.")
        assert {"/healthz", "/readyz", "/v1/plan"} <= answers[0].json["paths"].keys()
        assert len(made) == 1
        for page in ("/docs", "/redoc"):
            assert "/openapi.json" in here.ask("GET", page).text


def test_of_several_workers_none_shows_what_it_alone_has_planned() -> None:
    body = system(one_server("s"))
    for workers, status in ((1, 200), (2, 501)):
        with in_a_thread(workers=workers) as here:
            assert here.ask("POST", "/optimizeOne", body).status == 200
            answer = here.ask("GET", "/getServers")
            assert answer.status == status
            assert ("servers" in answer.json) == (workers == 1)
            assert here.app.state.held.read()[0] == (1 if workers == 1 else 0)


@pytest.mark.slow
def test_a_signal_while_it_starts_ends_it_well() -> None:
    with as_a_program() as here:
        here.process.send_signal(signal.SIGTERM)
        assert here.process.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_and_what_it_works_on_at_once() -> None:
    with as_a_program(INFERPLAN_SOLVER_PROCESSES="2") as here, ThreadPoolExecutor(1) as clients:
        lost = clients.submit(here.ask, "POST", "/optimizeOne", slow_system(1500))
        until(lambda: here.ask("GET", "/readyz").json["running"] == 1)
        here.process.send_signal(signal.SIGINT)
        until(lambda: not here.accepts())
        status, log = here.end(signal.SIGINT)
        assert status == 128 + signal.SIGINT
        assert log[-1]["message"] == "stopped at once; requests in progress were abandoned"
        assert isinstance(lost.exception(), OSError | http.client.HTTPException)


def test_an_application_can_live_again() -> None:
    app = create_app(Settings(solver_processes=0))
    for _ in range(2):
        with TestClient(app, "http://localhost") as client:
            assert client.post("/v1/plan", json=system(one_server("s"))).status_code == 200
