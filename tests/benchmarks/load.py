"""Measure the throughput of the service: ``python tests/benchmarks/load.py [--seconds S] [serve options]``.

Starts ``inferplan serve`` on a free port. Four clients send ``/optimizeOne``, every request with other
loads; then ``/healthz`` is asked while every solver worker is busy. The clients run on the same cores as the
service.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from optimizer import load_system

ROOT = Path(__file__).resolve().parents[2]
REFERENCE_RPS = {"large": 15.0, "small": 239.0}
"""What the reference's Go server answers to 4 clients on 2 cores [requests/s] (work order of the service)."""
CLIENTS = 4
BUSY_CLIENTS = 32
PREPARED = 4_000
"""Maximum number of requests of one measurement."""


def bodies(name: str, count: int, *, exact: bool = True) -> Iterator[bytes]:
    """Yield systems that differ in every load, to be planned exactly or, as the reference does, greedily."""
    document = load_system(ROOT / "specs" / name).to_spec().model_dump(mode="json", by_alias=True)
    document["optimizer"]["milpSolver"] = exact
    chance = random.Random(name)
    rates = [server["currentAlloc"]["load"]["arrivalRate"] for server in document["servers"]]
    for _ in range(count):
        for server, rate in zip(document["servers"], rates, strict=True):
            server["currentAlloc"]["load"]["arrivalRate"] = rate * chance.uniform(0.8, 1.2)
        yield json.dumps(document).encode()


@contextmanager
def service(options: list[str]) -> Iterator[int]:
    """Run a service and yield its port."""
    command = [sys.executable, "-m", "optimizer", "serve", "--port", "0", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        port = next(
            int(found[1]) for line in process.stderr if (found := re.search(r"http://.*:(\d+)", line))
        )
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            while call(http.client.HTTPConnection("127.0.0.1", port), "GET", "/readyz")[0] != 200:
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def call(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def clients(
    port: int, count: int, path: str, source: Iterator[bytes], until: Callable[[], bool]
) -> list[float]:
    """Return the latencies of all requests that some clients get answered [s]."""
    latencies: list[float] = []
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while not until():
            with lock:
                body = next(source, None)
            if body is None:
                return
            begin = time.perf_counter()
            status, answer = call(connection, "POST", path, body)
            latencies.append(time.perf_counter() - begin)
            if status != 200 or b"accelerator" not in answer:
                raise AssertionError(f"{status} {answer[:200]!r}")

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def core_seconds() -> float:
    """Return the time of a core that all processes below this one have taken; NaN where /proc is missing."""
    if not Path("/proc/self/stat").exists():
        return math.nan
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(times[process] for process in below if process != os.getpid())


def throughput(port: int, name: str, seconds: float, *, exact: bool) -> str:
    prepared = list(bodies(name, PREPARED, exact=exact))
    clients(port, CLIENTS, "/optimizeOne", iter(prepared[:40]), lambda: False)
    spent_s, begin = core_seconds(), time.perf_counter()
    latencies = clients(
        port, CLIENTS, "/optimizeOne", iter(prepared[40:]), lambda: time.perf_counter() - begin > seconds
    )
    core_ms = 1000 * (core_seconds() - spent_s) / len(latencies)
    rate, reference = len(latencies) / (time.perf_counter() - begin), REFERENCE_RPS[name]
    middle = statistics.median(latencies) * 1000
    how = "exact" if exact else "greedy"
    return (
        f"/optimizeOne, specs/{name}, {how:<7}{rate:6.1f} requests/s from {CLIENTS} clients, "
        f"median {middle:.0f} ms, "
        f"{core_ms:.1f} ms of a core each; "
        f"{rate / reference:.2f} times the reference's {reference:g}"
    )


def keep_busy(port: int) -> None:
    """Let more clients ask than there are solver workers."""
    source = itertools.cycle(list(bodies("large", 200)))
    clients(port, BUSY_CLIENTS, "/optimizeOne", source, lambda: False)


def readiness(port: int) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        call(http.client.HTTPConnection("127.0.0.1", port), "GET", "/readyz")[1]
    )
    return answer


def health(port: int, seconds: float) -> str:
    """Ask ``/healthz`` up to 50 times a second while every solver worker is busy, and more requests wait."""
    busy = multiprocessing.get_context("spawn").Process(target=keep_busy, args=(port,), daemon=True)
    busy.start()
    while readiness(port)["waiting"] < BUSY_CLIENTS // 2:
        time.sleep(0.05)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        asked = time.perf_counter()
        status, _ = call(connection, "GET", "/healthz")
        times.append(1000 * (time.perf_counter() - asked))
        assert status == 200
        time.sleep(0.02)
    assert readiness(port)["waiting"], "the service was not busy"
    busy.kill()
    middle, high = statistics.median(times), statistics.quantiles(times, n=100)[98]
    return f"/healthz under load: median {middle:.1f} ms, 99 % within {high:.1f} ms ({len(times)} requests)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (8)")
    known, options = parser.parse_known_args()
    measurements: list[Callable[[int], Any]] = [
        *(
            partial(throughput, name=name, seconds=known.seconds, exact=exact)
            for name in REFERENCE_RPS
            for exact in (True, False)
        ),
        lambda port: health(port, known.seconds),
    ]
    for measure in measurements:
        with service(options) as port:
            print(measure(port), flush=True)


if __name__ == "__main__":
    main()
