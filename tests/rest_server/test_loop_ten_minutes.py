"""Ten minutes of the loop as a command: a step of load, killed loops, and token times that have drifted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import COUNTED
from emulated import Emulator, emulated

from optimizer import load_system, solve
from optimizer.schema.files import plain_value
from optimizer.simulation.requests import Requests
from rest_server.emulator.driver import MeasuredLoad, ServerLoad, drive
from rest_server.loop.demo import FLEET, LOOP
from rest_server.loop.loads import EstimatedLoad, with_measured_loads

SECONDS, STEP_S, BACK_S = 600.0, 120.0, 360.0
LOW_RPS, HIGH_RPS, TARGET_MS = 2.0, 12.0, 1500.0
PERIOD_S, WINDOW_S = 5, 15
SLOWER = {"alpha: 20.0": "alpha: 24.0", "beta: 1.0": "beta: 1.2", "gamma: 0.0001": "gamma: 0.00012"}
"""Token times of the emulated fleet, 20 % longer than those of the loop's profile."""


def requests_of(seed: int, tokens: int = 30) -> Requests:
    """Return Poisson arrivals at a low, a high and a low rate, with geometric lengths."""
    rng, times_s, at_s = np.random.default_rng(seed), [], 0.0
    while at_s < SECONDS:
        at_s += rng.exponential(1 / (HIGH_RPS if STEP_S <= at_s < BACK_S else LOW_RPS))
        times_s.append(at_s)
    count = len(times_s) - 1
    return Requests(np.full(count, 40), rng.geometric(1 / tokens, count), 1000 * np.array(times_s[:-1]))


class LoopProcess:
    """The command, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "optimizer", "loop", str(self._folder / "loop.yaml")]
        command += ["--state", str(self._folder / "state.json")]
        with (
            (self._folder / "records.jsonl").open("ab") as out,
            (self._folder / "errors").open("ab") as errors,
        ):
            self._process = subprocess.Popen(command, stdout=out, stderr=errors, env=os.environ | COUNTED)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def records(self) -> list[dict[str, Any]]:
        """Return the records; a line can end at a kill."""
        found = []
        for line in (self._folder / "records.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found


def planned_at(rate_rps: float) -> int:
    system = load_system(plain_value(FLEET, "fleet"))  # type: ignore[arg-type]
    load = EstimatedLoad(rate_rps, rate_rps, 0.0, in_tokens=40.0, out_tokens=30.0)
    plan = solve(with_measured_loads(system, {"talk": load}, variation=False))
    return sum(pool.num_replicas for pool in plan.allocations["talk"])


@contextlib.contextmanager
def watched(fleet: Emulator) -> Iterator[list[int]]:
    """Yield the ready replicas, looked at every second."""
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            found = fleet.ask("/apis/apps/v1/namespaces/serving/deployments").json["items"]
            seen.append(sum(item["status"].get("readyReplicas", 0) for item in found))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        stop.set()
        watching.join()


def at(begun_s: float, seconds: float, act: Callable[[], None]) -> None:
    time.sleep(max(0.0, begun_s + seconds - time.time()))
    act()


@pytest.mark.slow
def test_ten_minutes_with_a_step_kills_and_a_drift(tmp_path: Path) -> None:
    slower = FLEET
    for old, new in SLOWER.items():
        assert old in slower
        slower = slower.replace(old, new)
    (tmp_path / "slower.yaml").write_text(slower)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    rng, loop, driven = np.random.default_rng(), LoopProcess(tmp_path), list[MeasuredLoad]()
    requests = requests_of(int(rng.integers(2**31)))
    load = ServerLoad("talk", "chat", streams=True, rate_rps=LOW_RPS, requests=requests)
    with emulated(tmp_path / "slower.yaml", "--scalable", "--startup", "5") as fleet:
        text = LOOP.format(url=fleet.url).replace("period: 3", f"period: {PERIOD_S}")
        (tmp_path / "loop.yaml").write_text(text.replace("window: 9", f"window: {WINDOW_S}"))
        loop.start()
        begun_s = time.time()
        driving = threading.Thread(target=lambda: driven.extend(drive(fleet.url, [load])))
        driving.start()
        with watched(fleet) as ready:
            for first, last in ((30, 80), (220, 340), (400, 540)):  # not while the step is measured
                at(begun_s, rng.uniform(first, last), loop.kill)
                at(time.time(), rng.uniform(0, 10), loop.start)
            driving.join()
            at(begun_s, SECONDS, loop.kill)
        events = fleet.ask("/api/v1/namespaces/serving/events").json["items"]
    assert (tmp_path / "errors").read_text() == ""
    records = loop.records()
    for record in records:
        record["at_s"] = record["inputs"]["now_s"] - begun_s
    assert min(ready) >= 1
    assert all(item["replicas"] >= 1 for record in records for item in record["workloads"])
    true = planned_at(HIGH_RPS)
    filled = [r for r in records if STEP_S + WINDOW_S + 2 * PERIOD_S <= r["at_s"] < 220]
    rates = [record["planned"]["talk"]["for_rate"] for record in filled]
    alarms = [r["at_s"] for r in records if r["drift"].get("chat/GPU", {}).get("alarm")]
    within = float(np.mean(driven[0].latencies_ms["ttft"] <= TARGET_MS))
    most = max(item["replicas"] for record in records for item in record["workloads"])
    print(
        f"{len(records)} cycles; plan for the true rate {true}, for measured ones {sorted(set(rates))}, the "
        f"most replicas {most}; first alarm after {min(alarms, default=np.nan):.0f} s; {within:.1%} of first "
        f"tokens within {TARGET_MS / 1000:g} s, {driven[0].loss:.2%} lost"
    )
    assert all(abs(number - true) <= 1 for number in rates)
    assert alarms
    assert {item["reason"] for item in events} == {"ProfileDrift"}
    assert driven[0].loss < 0.01
