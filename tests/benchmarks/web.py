"""Measure the page for analysts in Chromium: ``python tests/benchmarks/web.py [PART …]``.

- ``open``: from opening ``specs/large``, which the service has not planned yet, to the first visible plan,
  against the wall time of ``inferplan solve specs/large``, in turns; and from opening it again
- ``slider``: from a move of the slider to the changed cost, on ``specs/small`` and ``specs/large``
- ``targets``: answers of ``/v1/targets`` of a service with 20 open pages against one without, in turns
- ``memory``: resident memory of the service over 1,000 plans of one page

Times are medians of five. Needs Debian's ``chromium`` and ``chromium-driver``.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

from optimizer import load_system

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("", "web", "rest_server")]
from browsers import started  # noqa: E402  the helpers of the tests are in no package
from page_runs import served  # noqa: E402
from service_runs import descendants, status_of  # noqa: E402

RUNS = 5
PAGES = 20
REQUESTS = 400
"""Requests of one measurement of ``/v1/targets``."""
PLANS = 1_000
SOLVE = sys.executable, "-m", "optimizer", "solve", "specs/large"
VISIBLE = """
window.visibleAt = null;
const look = () => {
  const value = document.querySelector(".fact .value");
  if (value && !["", "…"].includes(value.textContent.trim())) window.visibleAt = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
MOVE = """
const [factor, done] = arguments;
const slider = document.querySelector('input[type=range][aria-label="Load of all servers"]');
const fact = [...document.querySelectorAll(".fact")].find(fact => fact.textContent.includes("total cost"));
const value = fact.querySelector(".value");
const before = value.textContent, began = performance.now();
slider.value = factor;
slider.dispatchEvent(new Event("input"));
const look = () => {
  if (value.textContent !== before) done(performance.now() - began);
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


@contextmanager
def browser() -> Iterator[Any]:
    """Start a browser."""
    with tempfile.TemporaryDirectory() as folder:
        running = started(Path(folder))
        driver = next(running)
        driver.set_script_timeout(120)
        driver.set_window_size(1280, 900)
        yield driver
        next(running, None)


@contextmanager
def service(*options: str) -> Iterator[str]:
    """Start a service."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "log", *options) as address:
        yield address


def opened(driver: Any, address: str) -> float:
    """Open a page; return the time to its first plan [ms]."""
    driver.get(address)
    while (found := driver.execute_script("return window.visibleAt")) is None:
        time.sleep(0.05)
    return float(found)


def wait_until_ready(address: str) -> None:
    """Wait until a service has a process that can solve."""
    connection, status = http.client.HTTPConnection(address.removeprefix("http://")), 0
    while status != HTTPStatus.OK:
        time.sleep(0.1)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        status = answer.status
        answer.read()
    connection.close()


def measure_open() -> None:
    """Measure the time to the first plan, and that of the command, which includes the start of Python."""
    runs = []
    with browser() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VISIBLE})
        for _ in range(RUNS):
            with service("web", "specs/large", "--no-browser") as address:
                wait_until_ready(address)
                shown = [opened(driver, address) for _ in range(2)]
                driver.get("about:blank")
            began = time.perf_counter()
            subprocess.run(SOLVE, check=True, capture_output=True)
            runs.append((*shown, 1000 * (time.perf_counter() - began)))
    first, again, command = (median(each) for each in zip(*runs, strict=True))
    ratio = median(run[0] / run[2] for run in runs)
    print(
        f"open large: first plan after {first:.0f} ms, {ratio:.2f} times the command ({command:.0f} ms); "
        f"again after {again:.0f} ms"
    )


def measure_slider() -> None:
    """Measure the time from a move of the slider to the changed cost."""
    with service("web", "--no-browser") as address, browser() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VISIBLE})
        for sample in ("small", "large"):
            opened(driver, f"{address}/?open=sample:{sample}")
            driver.execute_async_script(MOVE, "0.5")
            times = [driver.execute_async_script(MOVE, f"{0.6 + 0.1 * run:g}") for run in range(RUNS)]
            print(f"slider {sample}: answer after {median(times):.0f} ms")


def measure_targets() -> None:
    """Measure the targets of two services in turns, of which one has open pages."""
    options = ("serve", "--stateful", "--web")
    with service(*options) as alone, service(*options) as beside, browser() as driver:
        connections = [with_fleet(address) for address in (alone, beside)]
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VISIBLE})
        for _ in range(PAGES):
            driver.switch_to.new_window("tab")
            driver.get(f"{beside}/web/?open=sample:small")
        time.sleep(10)
        pairs = [[targets_ms(connection) for connection in connections] for _ in range(RUNS)]
    ratios = [second / first for first, second in pairs]
    times, shown = median(first for first, _ in pairs), ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"targets: {times:.2f} ms without pages, ratio with {PAGES} {median(ratios):.2f} ({shown})")


def with_fleet(address: str) -> http.client.HTTPConnection:
    """Give a service a fleet and a plan; return a connection to it."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    fleet = load_system("specs/large").to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    ask(connection, "PUT", "/v1/fleet", fleet)
    ask(connection, "POST", "/v1/loads", {})
    return connection


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> None:
    """Send a request, and read the answer."""
    connection.request(method, path, None if body is None else json.dumps(body).encode())
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()


def targets_ms(connection: http.client.HTTPConnection) -> float:
    """Return the median time of an answer [ms]."""
    connection.close()  # the service closes it when it is idle; the next request opens it
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        ask(connection, "GET", "/v1/targets")
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


def measure_memory() -> None:
    """Measure the memory of the service over many plans of one page."""
    with service("web", "--no-browser") as address, browser() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": VISIBLE})
        opened(driver, f"{address}/?open=sample:small")
        for plans in range(PLANS + 1):
            if plans % 100 == 0:
                heap = driver.execute_script("return performance.memory.usedJSHeapSize") / 2**20
                print(f"memory after {plans:,} plans: {service_mb()}, page {heap:.0f} MB", flush=True)
            driver.execute_async_script(MOVE, f"{(0.5, 0.75, 1.25)[plans % 3]:g}")


def service_mb() -> str:
    """Return the resident memory of the service, and of its processes."""
    service = next(pid for pid in descendants(os.getpid()) if b"optimizer" in command_of(pid))
    solvers = sum(status_of(pid, "VmRSS") for pid in descendants(service))
    return f"service {status_of(service, 'VmRSS') / 1024:.0f} MB, its processes {solvers / 1024:.0f} MB"


def command_of(pid: int) -> bytes:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


PARTS: dict[str, Callable[[], None]] = {
    "open": measure_open,
    "slider": measure_slider,
    "targets": measure_targets,
    "memory": measure_memory,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Times and memory of the page for analysts.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    for name in parser.parse_args().parts or PARTS:
        PARTS[name]()
