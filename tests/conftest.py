"""What all tests share: how hypothesis searches, and where the reference data lie."""

import gc
import io
import os
import random
import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from commands import Run
    from emulated import Emulator
    from fastapi.testclient import TestClient

ROOT = Path(__file__).resolve().parent.parent
COUNTED = pytest.StashKey[bool]()
"""Whether a case counts the lines that it runs, if a run counts any."""
HEAVY = {"candidates", "queueing", "simulation", "solvers"}
"""Folders whose further cases of a test are other numbers, not other ways through the program."""
WHOLE_SUITE = 2000
"""Tests from which on a run is one of the whole suite, which needs all code that is compiled."""

for name in list(os.environ):
    if name.startswith("INFERPLAN_") or name in {
        "COLUMNS",
        "LINES",
        "FORCE_COLOR",
        "NO_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONIOENCODING",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
    }:
        del os.environ[name]  # what one machine sets must not decide what the program prints

sys.dont_write_bytecode = False  # a hundred processes would each compile the program, and every run all tests
gc.disable()  # until all tests are collected: they stay, and looking through them again and again takes long

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Leave slow cases out where no slow check is run, or else draw their seeds before workers start."""
    from slow_cases import draw_seeds, leave_out_slow_cases

    if config.option.markexpr == "not slow":
        leave_out_slow_cases()
    else:
        draw_seeds()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say how to repeat a slow run that failed."""
    from slow_cases import draw_seeds

    if exitstatus and config.option.markexpr != "not slow":
        terminalreporter.write_line(draw_seeds())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but a few cases of a test with the mark `few` to the slow run.

    Python is half as fast where lines are counted; in `HEAVY` folders only the first case of a test counts.
    """
    cases = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        mark = item.get_closest_marker("few")
        if mark is not None and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (test, count), mine in cases.items():
        quick = random.Random(test).sample(mine, min(len(mine), count))
        for item in mine:
            if item not in quick:
                item.add_marker("slow")
    counted = set[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        item.stash[COUNTED] = test not in counted or item.path.parent.name not in HEAVY
        if not item.get_closest_marker("slow"):
            counted.add(test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> "Generator[None, object, object]":
    """Run all but the first case of a test without the tracer of coverage; other threads keep theirs."""
    trace = sys.gettrace()
    if type(trace).__name__ != "CTracer" or item.stash[COUNTED]:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave checks that take half a minute to collect unread where no slow check is run."""
    unread = collection_path.name.endswith("_at_length.py") and config.option.markexpr == "not slow"
    return True if unread else None


def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores, because tests of services and pages wait for processes."""
    from optimizer.parallel import core_count

    return core_count() + 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile before a run of the whole suite begins, which is when all workers have come this far.

    What is there by then is left alone by the garbage collector.
    """
    gc.freeze()
    gc.set_threshold(50_000)  # the young objects of a test are looked through less often
    gc.enable()
    mine = getattr(session.config, "workerinput", None)
    if mine is None or len(session.items) < WHOLE_SUITE:
        return
    from compiled_once import parts_of

    for compile_part in parts_of(mine["workerid"], mine["workercount"]):
        compile_part()


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference data, which lies beside the repository and is not part of it."""
    folder = ROOT.parent / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip(f"the reference data are not here: {folder}")
    return folder


@pytest.fixture(scope="session")
def specs() -> Path:
    """The sample systems of the repository."""
    return ROOT / "specs"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Run":
    """Run a command in this process, with `stdin` as its standard input."""
    from commands import Answer

    from optimizer.cli.main import main

    def call(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        try:
            status = main([str(item) for item in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        return Answer(status, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Any]":
    """A headless browser, whose start takes seconds."""
    from browsers import started

    yield from started(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def browser(started_browser: Any) -> "Iterator[Any]":
    """A headless browser without a page or cookies, of the usual size and look."""
    from browsers import cleared

    yield started_browser
    cleared(started_browser)


@pytest.fixture(scope="session")
def services() -> "Iterator[Callable[[bool], TestClient]]":
    """Start a service with a fleet, and one without, once a session."""
    from api_clients import client

    with ExitStack() as started:
        yield cache(lambda stateful: started.enter_context(client(stateful=stateful)))


@pytest.fixture(scope="module")
def running_service(request: pytest.FixtureRequest, services: "Callable[[bool], TestClient]") -> "TestClient":
    """A service whose fleet is empty when a file begins, with a fleet unless `STATEFUL` of it is false."""
    from api_clients import state_of

    from rest_server.state import FleetStore

    found = services(getattr(request.module, "STATEFUL", True))
    state_of(found).held = FleetStore(instance="run")
    return found


@pytest.fixture
def service(running_service: "TestClient") -> "TestClient":
    """A service whose fleet, if it has one, is empty."""
    from api_clients import state_of

    from rest_server.state import FleetStore

    state_of(running_service).held = FleetStore(instance="run")
    return running_service


@pytest.fixture(scope="module")
def fleet_document(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document of an emulated fleet: `DOCUMENT` of the module, or two replicas and a batch server."""
    from emulated import FLEET

    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    path.write_text(getattr(request.module, "DOCUMENT", FLEET))
    return path


@pytest.fixture(scope="module")
def fleet(fleet_document: Path) -> "Iterator[Emulator]":
    """The emulated fleet of a module."""
    from emulated import emulated

    with emulated(fleet_document) as found:
        yield found
