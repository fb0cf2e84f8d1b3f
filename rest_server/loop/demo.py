"""Demo of the control loop on one machine: an emulated fleet, a step of the load, and the loop."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.errors import SpecError
from optimizer.simulation.requests import Requests
from optimizer.spec.system import load_system
from optimizer.studies.figures.figure_document import Figure
from rest_server.emulator.driver import MeasuredLoad, ServerLoad, drive
from rest_server.loop.config import read_config
from rest_server.loop.controller import Controller
from rest_server.loop.kubernetes import Cluster, connected
from rest_server.loop.loop_figure import loop_figure
from rest_server.loop.sources import open_source

FLEET = """\
accelerators: [{name: GPU, type: GPU, cost: 50, memSize: 80}]
count: [{type: GPU, count: 8}]
models:
  - {name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
serviceClasses:
  - name: Interactive
    priority: 1
    modelTargets: [{model: chat, slo-itl: 60, slo-ttft: 1500}]
servers:
  - {name: talk, class: Interactive, model: chat, maxQueueSize: 200,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 40, avgOutTokens: 30}}}
"""
LOOP = """\
system: fleet.yaml
source: {{kind: scrape, url: "{url}/emulator/targets"}}
kubernetes: {{url: "{url}"}}
period: 3
window: 9
startup: 5
rules: {{scaleDownWindow: 15}}
"""
LOW_RPS, HIGH_RPS = 2.0, 12.0
STEP_AT, END_AT = 0.25, 0.65
"""Start and end of the high load, as fractions of the duration."""
STARTUP_S, LIMIT_MS = 5, 1500.0
WORDS = {
    "WindowNotFull": "waits until the measurements fill its window",
    "New": "first plan",
    "Unchanged": "nothing to change",
    "LoadIncrease": "more load",
    "LoadDecrease": "less load",
    "Replanned": "another plan",
    "ScaleDownWindow": "the load was higher a moment ago",
    "ScaleDownLoad": "the load is not low enough",
    "ScaleDownLimit": "not so many at once",
    "ScaleUpLimit": "not so many at once",
    "PendingReplicas": "new replicas are still starting",
}
"""Reasons that this fleet can have, in words."""
HEADINGS = "   time  arrivals  completed  planned  replicas  what the loop does"


@contextmanager
def emulated_fleet(path: Path) -> Iterator[str]:
    """Run an emulator with the Kubernetes API, and yield its address.

    Raises:
        SpecError: the emulator does not start.
    """
    command = [sys.executable, "-m", "optimizer", "emulate", str(path), "--port", "0", "--scalable"]
    command += ["--startup", str(STARTUP_S)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  this program itself
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("ready"):
                yield json.loads(line)["url"]
                return
        raise SpecError("the emulated fleet does not start; see above")
    finally:
        process.terminate()
        process.wait()


def requests_of(seconds: float, seed: int = 1) -> Requests:
    """Return the requests of the demo: Poisson arrivals at a low, then a high, then a low rate."""
    rng, times_s = np.random.default_rng(seed), []
    at_s = 0.0
    while at_s < seconds:
        is_high = STEP_AT * seconds <= at_s < END_AT * seconds
        at_s += rng.exponential(1 / (HIGH_RPS if is_high else LOW_RPS))
        times_s.append(at_s)
    arrival_ms = 1000 * np.array(times_s[:-1])
    count = len(arrival_ms)
    return Requests(np.full(count, 40), rng.geometric(1 / 30, count), arrival_ms)


def run_demo(seconds: float, say: Callable[[str], None]) -> Figure:
    """Run the demo, and return the figure of its results.

    Args:
        seconds: duration of the load [s].
        say: called with each line of text.

    Raises:
        SpecError: the emulated fleet does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        fleet, config_file = Path(folder) / "fleet.yaml", Path(folder) / "loop.yaml"
        fleet.write_text(FLEET, encoding="utf-8")
        say(f"one replica takes about 4.5 requests/s; the load is {LOW_RPS:g}, then {HIGH_RPS:g} requests/s")
        with emulated_fleet(fleet) as url:
            config_file.write_text(LOOP.format(url=url), encoding="utf-8")
            say(HEADINGS)
            records: list[dict[str, Any]] = []
            stop = threading.Event()

            def write(record: dict[str, Any]) -> None:
                records.append(record)
                say(_line(record, records[0]))

            looping = threading.Thread(target=_loop, args=(config_file, write, stop))
            looping.start()
            begun_s = time.time()
            try:
                load = ServerLoad(
                    "talk", "chat", streams=True, rate_rps=LOW_RPS, requests=requests_of(seconds)
                )
                (driven,) = drive(url, [load])
            finally:
                stop.set()
                looping.join()
        say(_summary(driven))
        late_s = begun_s - records[0]["inputs"]["now_s"]
        events = {"six times the load": late_s + STEP_AT * seconds, "end": late_s + END_AT * seconds}
        return loop_figure(records, "talk", "A step of six times the load", events)


def _loop(config_file: Path, write: Callable[[dict[str, Any]], None], stop: threading.Event) -> None:
    config = read_config(config_file)
    system, target = load_system(config.system), config.kubernetes
    assert target is not None
    cluster = Cluster(connected(target), target, system)
    Controller(system, config, open_source(config), cluster, write).run(stop)


def _line(record: dict[str, Any], first: dict[str, Any]) -> str:
    load = record["loads"].get("talk")
    (item,) = record["workloads"] or [
        {"existing": 0, "ready": 0, "replicas": 0, "reason": "", "result": "", "held": False}
    ]
    rates = (
        "       –          –        –"
        if load is None
        else f"{load['offered_rps']:8.1f}{load['completions_rps']:11.1f}{load['planned_rps']:9.1f}"
    )
    what = _change(item) if item["result"] else _words(item["reason"])
    passed_s = record["inputs"]["now_s"] - first["inputs"]["now_s"]
    return f"{passed_s:6.0f} s{rates:>28}{item['ready']:6}/{item['existing']}  {what}"


def _change(item: dict[str, Any]) -> str:
    """Describe a change; a rule that holds a number states why it does not change further."""
    limit = "not lower" if item["replicas"] < item["existing"] else "not higher"
    reason = f", {limit}: " if item["held"] else ": "
    return f"{item['existing']} → {item['replicas']}{reason}{_words(item['reason'])}"


def _words(reason: str) -> str:
    """Return a reason for readers: words of the reasons of this demo, and other reasons as they are."""
    return WORDS.get(reason, reason)


def _summary(measured_load: MeasuredLoad) -> str:
    first_ms = measured_load.latencies_ms["ttft"]
    return (
        f"{len(first_ms)} requests: {np.mean(first_ms <= LIMIT_MS):.0%} with a first token within "
        f"{LIMIT_MS / 1000:g} s, {measured_load.loss:.1%} without a complete answer"
    )
