"""When a page closes, its work is cancelled and its document freed. The service runs in this process."""

import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from page_runs import SELECT_ALL, Journey
from patience import PATIENT, until

from optimizer.simulation.replicas import MAX_REQUESTS
from rest_server.app import create_page
from rest_server.settings import Settings


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


def workspaces() -> int:
    """Return how many pages have a state."""
    gc.collect()
    return sum(type(each).__name__ == "Workspace" for each in gc.get_objects())


@pytest.mark.slow
def test_a_closed_page_leaves_nothing(browser: Any, service: tuple[str, Any], specs: Path) -> None:
    address, app = service
    journey = Journey(browser, address)
    assert workspaces() == 0
    journey.open("/", ".cm-content")
    journey.write((specs / "chat.yaml").read_text("utf-8"))
    journey.press("Check and plan")
    journey.wait(lambda: journey.fact("total cost"))
    journey.tab("Studies")
    journey.type("Requests to each pool", f"{SELECT_ALL}{MAX_REQUESTS}")
    journey.press("Run simulate")
    until(lambda: app.state.study_workers.running == 1)
    assert workspaces() == 1
    journey.leave()
    until(lambda: app.state.study_workers.running == 0)
    until(lambda: workspaces() == 0, 0.2)
