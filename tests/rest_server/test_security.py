"""API keys: where they come from, what they may do, and what stands in their way."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_runs import in_a_thread

from optimizer.errors import SpecError
from rest_server.security import KeyFiles, given_key, needed_scope


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("all-of-it # everything\n\n# a comment\nread reader\nread,solve planner\n", "utf-8")
    return path


STUDIES = ("candidates", "compare", "explain", "report", "simulate", "figure")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/getServers", "read"),
        ("GET", "/v1/plan", "read"),
        ("GET", "/openapi.json", "read"),
        ("GET", "/removeServer/x", "write"),
        ("GET", "/addModel/x", "write"),
        ("GET", "/applyAllocation", "write"),
        ("POST", "/v1/plan", "solve"),
        *(("POST", f"/v1/{name}", "solve") for name in STUDIES),
        ("POST", "/queue/solve", "solve"),
        ("POST", "/optimize", "solve"),
        ("POST", "/optimizeOne", "solve"),
        ("POST", "/setServers", "write"),
        ("POST", "/v1/loads", "write"),
        ("POST", "/v1/plan/apply", "write"),
        ("PUT", "/v1/servers/x", "write"),
        ("DELETE", "/v1/servers/x", "write"),
    ],
)
def test_every_route_needs_the_scope_of_what_it_does(method: str, path: str, scope: str) -> None:
    assert needed_scope(method, path, ()) == scope


def test_replacing_the_fleet_needs_the_scope_to_write() -> None:
    assert needed_scope("POST", "/optimizeOne", {"/optimizeOne"}) == "write"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "changing"),
    [
        ({}, set()),
        ({"stateful": True}, {"/optimize", "/optimizeOne"}),
        ({"stateful": True, "protect_state": True}, {"/optimize"}),
    ],
)
def test_solving_that_changes_the_fleet_needs_the_write_scope(
    keys: Path, given: dict[str, Any], changing: set[str]
) -> None:
    with in_a_thread(api_key_files=(keys,), queue_at_root=True, **given) as here:
        for path in ("/optimize", "/optimizeOne"):
            status = here.ask("POST", path, b"nothing", X_API_KEY="planner").status
            assert status == (403 if path in changing else 400)


@pytest.mark.few(1)
@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200)])
def test_pages_of_other_sites_cannot_use_the_browser_of_a_user(
    service: TestClient, site: str, status: int
) -> None:
    sent = {"Sec-Fetch-Site": site}
    assert service.get("/addModel/m", headers=sent).status_code == status
    assert service.get("/getModels").json() == (["m"] if status == 200 else [])
    assert service.get("/healthz", headers=sent).status_code == 200


@pytest.mark.parametrize(
    ("origin", "site", "status"),
    [
        ("http://localhost:8080", None, 200),
        ("HTTP://LOCALHOST:8080", None, 200),
        ("http://localhost:9", None, 403),
        ("https://elsewhere.example", None, 403),
        ("null", None, 403),
        ("https://elsewhere.example", "same-origin", 200),
        ("http://localhost:8080", "cross-site", 403),
    ],
)
def test_where_a_browser_does_not_say_the_site_the_origin_counts(
    service: TestClient, origin: str, site: str | None, status: int
) -> None:
    sent = {"Host": "localhost:8080", "Origin": origin} | ({"Sec-Fetch-Site": site} if site else {})
    answer = service.post("/setModels", content=b'{"models": []}', headers=sent)
    assert answer.status_code == status


def test_a_key_comes_in_its_own_header_or_as_a_bearer_token() -> None:
    assert given_key({b"x-api-key": b" k "}) == b"k"
    assert given_key({b"authorization": b"bearer  k"}) == b"k"
    assert given_key({b"authorization": b"Basic k"}) == b""
    assert given_key({b"x-api-key": b"a", b"authorization": b"Bearer b"}) == b"a"


@pytest.mark.slow
def test_a_request_needs_a_known_key_with_the_scope(keys: Path) -> None:
    with in_a_thread(api_key_files=(keys,), stateful=True) as here:
        unknown = here.ask("GET", "/v1/servers")
        assert unknown.status == 401
        assert unknown.json["detail"] == "an API key is needed; send one in X-API-KEY, or as a bearer token"
        assert unknown.headers["www-authenticate"].startswith("Bearer")
        wrong = here.ask("GET", "/getServers", X_API_KEY="wrong")
        assert (wrong.status, set(wrong.json)) == (401, {"message"})
        for path in ("/healthz", "/readyz"):
            assert here.ask("GET", path).status == 200
        assert here.ask("GET", "/getServers", Authorization="Bearer reader").status == 200
        refused = here.ask("POST", "/v1/plan", b"{}", X_API_KEY="reader")
        assert refused.status == 403
        assert "lacks the scope 'solve'" in refused.json["detail"]
        assert here.ask("POST", "/v1/plan", b"{}", X_API_KEY="planner").status == 422
        assert here.ask("GET", "/addModel/m", X_API_KEY="planner").status == 403
        assert here.ask("GET", "/addModel/m", X_API_KEY="all-of-it").status == 200


def test_the_log_shows_no_key(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), in_a_thread(api_key_files=(keys,)) as here:
        here.ask("GET", "/getServers", X_API_KEY="reader")
    entry = next(record for record in caplog.records if record.name == "inferplan.access")
    fields = entry.__dict__["fields"]
    assert len(fields["key"]) == 8
    assert "reader" not in json.dumps(fields)


def test_changed_files_count_from_the_next_request(keys: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("write reader\n", "utf-8")
    files = KeyFiles([keys, more])
    found = files.find(b"reader")
    assert found is not None
    assert found.scopes == {"read", "write"}
    more.write_text("", "utf-8")
    keys.write_text("new\n", "utf-8")
    assert files.find(b"reader") is None
    assert files.find(b"new") is not None


def test_a_file_that_cannot_be_read_any_more_lets_nobody_in(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = KeyFiles([keys])
    keys.unlink()
    assert files.find(b"reader") is None
    assert files.required
    assert "its keys are rejected" in caplog.text
    keys.write_text("one two secret\n", "utf-8")
    assert files.find(b"secret") is None
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secret b c", "keys:1: give 'KEY'"),
        ("\nreed secret", "keys:2: scopes are read, solve and write"),
        ("good\nread secrét", "keys:2: character 5 of the key cannot be sent in a header"),
        ("secret\u200b", "keys:1: character 7 of the key cannot be sent"),
        ("secret\x07", "keys:1: character 7 of the key cannot be sent"),
    ],
)
def test_a_bad_line_is_named_without_the_key(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "keys").write_text(text, "utf-8")
    with pytest.raises(SpecError, match=problem) as caught:
        KeyFiles([tmp_path / "keys"])
    assert "secr" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        KeyFiles([tmp_path / "none"])
    (tmp_path / "keys").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8"):
        KeyFiles([tmp_path / "keys"])
