"""Who may use the page: keys in a cookie, hosts, other sites, uploads that are too large, one process."""

import base64
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commands import Run, is_one_line
from doc_pages import read_page
from page_runs import served
from service_runs import ask, connected, watched

KEY, READ = "a-key-that-may-all", "a-key-that-may-read"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys").write_text(f"{KEY}\nread {READ}\n")
    with watched(folder / "log", "--web", "--stateful", "--api-keys", str(folder / "keys")) as found:
        yield found.port


def cookie(key: str) -> str:
    return f"inferplan_key={base64.urlsafe_b64encode(key.encode()).decode()}"


def test_a_browser_without_a_key_is_sent_to_sign_in(port: int) -> None:
    assert ask(port, "GET", "/web/?open=sample:small").headers["location"] == "/web/sign-in?open=sample:small"
    assert ask(port, "GET", "/web/_nicegui_ws/socket.io/?EIO=4&transport=polling").status == 401
    assert ask(port, "GET", "/web/", Cookie=cookie("unknown")).status == 303
    assert ask(port, "GET", "/web/", Cookie="inferplan_key=%%%").status == 303


def test_the_key_is_in_a_cookie_that_stays_here(port: int) -> None:
    answer = ask(port, "POST", "/web/sign-in?open=sample:small", f"key={KEY}".encode())
    assert (answer.status, answer.headers["location"]) == (303, "/web/?open=sample:small")
    given = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/web/"} <= set(given.split("; "))
    assert "expires" not in given.lower()
    assert "max-age" not in given.lower()
    assert ask(port, "GET", "/web/", Cookie=given.partition(";")[0]).status == 200
    assert ask(port, "POST", "/web/sign-in", b"key=wrong").status == 401


def test_the_cookie_opens_the_page_alone(port: int) -> None:
    assert ask(port, "GET", "/v1/fleet", Cookie=cookie(KEY)).status == 401


def handshake(port: int, **headers: str) -> int:
    """Return the status of the answer to the opening of a socket."""
    names = {"Host": f"127.0.0.1:{port}", "Upgrade": "websocket", "Connection": "Upgrade"}
    names |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in names.items())
    path = "/web/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with connected(port, f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()) as opened:
        return int(opened.recv(100).split()[1])


def test_a_socket_of_another_site_is_refused(port: int) -> None:
    own = f"http://127.0.0.1:{port}"
    assert handshake(port, Origin="http://evil.example", Cookie=cookie(KEY)) == 403
    assert handshake(port, Origin=own) == 403, "without a key"
    assert handshake(port, Origin=own, Host="evil.example", Cookie=cookie(KEY)) == 403
    assert handshake(port, Origin=own, Cookie=cookie(KEY)) == 101


def test_no_site_may_frame_or_post_to_the_page(port: int) -> None:
    page = ask(port, "GET", "/web/", Cookie=cookie(READ))
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    foreign = {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}
    assert ask(port, "POST", "/web/sign-in", f"key={KEY}".encode(), **foreign).status == 403
    assert ask(port, "GET", "/web/", Host="evil.example", Cookie=cookie(KEY)).status == 421


def test_an_upload_of_50_mb_is_refused(port: int) -> None:
    path = "/web/_nicegui/client/x/upload/1"
    assert ask(port, "POST", path, bytes(5_000_000), Cookie=cookie(KEY)).status == 413
    with suppress(ConnectionError):  # the rest of a very large body is not read
        assert ask(port, "POST", path, bytes(50_000_000), Cookie=cookie(KEY)).status == 413
    assert ask(port, "GET", "/healthz").status == 200


def test_the_page_needs_one_process(run: Run) -> None:
    message = "--workers 2: the page needs one process for all visitors"
    is_one_line(run("serve", "--web", "--workers", "2", "--port", "0"), message)


def test_without_the_extra_the_command_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch, specs: Path
) -> None:
    monkeypatch.setitem(sys.modules, "nicegui", None)
    monkeypatch.delitem(sys.modules, "rest_server.web.mount", raising=False)
    is_one_line(run("web", specs / "small", "--port", "0", "--no-browser"), "run: pip install -e '.[web]'")


@pytest.mark.slow
def test_the_command_of_the_documentation_serves_the_page(tmp_path: Path) -> None:
    (line,) = re.findall(r"^inferplan (web .*)$", read_page("web.md").partition("## ")[0], re.MULTILINE)
    with served(tmp_path / "log", *line.split(), "--no-browser") as address:
        assert ask(int(address.rpartition(":")[2]), "GET", "/").status == 200
