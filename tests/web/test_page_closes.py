"""When a page closes, its work is cancelled and its document freed. The service runs in this process."""

import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import uvicorn
from page_runs import SELECT_ALL, Journey
from patience import PATIENT, until

from optimizer.simulation.replicas import MAX_REQUESTS
from rest_server.app import create_page
from rest_server.settings import Settings
from rest_server.web.workspace import Workspace


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, Any]]:
    app = create_page(Settings(**PATIENT | {"solver_processes": 1, "max_studies": 1}))
    server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", app
        server.should_exit = True
        thread.join()


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> WeakSet[Workspace]:
    """The states of pages that are not freed yet."""
    states: WeakSet[Workspace] = WeakSet()
    created = Workspace.__init__

    def noted(self: Workspace, *args: Any) -> None:
        states.add(self)
        created(self, *args)

    monkeypatch.setattr(Workspace, "__init__", noted)
    return states


def number_of(states: WeakSet[Workspace]) -> int:
    gc.collect()
    return len(states)


@pytest.mark.slow
def test_a_closed_page_leaves_nothing(
    browser: Any, service: tuple[str, Any], specs: Path, alive: WeakSet[Workspace]
) -> None:
    address, app = service
    journey = Journey(browser, address)
    assert number_of(alive) == 0
    journey.open("/", ".cm-content")
    journey.write((specs / "chat.yaml").read_text("utf-8"))
    journey.press("Check and plan")
    journey.wait(lambda: journey.fact("total cost"))
    journey.tab("Studies")
    journey.type("Requests to each pool", f"{SELECT_ALL}{MAX_REQUESTS}")
    journey.press("Run simulate")
    until(lambda: app.state.study_workers.running == 1)
    assert number_of(alive) == 1
    journey.leave()
    until(lambda: app.state.study_workers.running == 0)
    until(lambda: number_of(alive) == 0, 0.2)
