"""The loop with a real Prometheus that is killed, stopped and started again, at a constant load."""

import contextlib
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from emulated import emulated
from patience import until
from prometheus_runs import COMPONENT, asked, needs_prometheus

from optimizer.simulation.requests import Requests
from optimizer.spec.system import load_system
from rest_server.emulator.driver import ServerLoad, drive
from rest_server.loop.config import LoopConfig
from rest_server.loop.controller import Controller
from rest_server.loop.demo import FLEET
from rest_server.loop.fetching import Fetcher
from rest_server.loop.kubernetes import Cluster, connected
from rest_server.loop.prometheus import asked as reader_of

pytestmark = [needs_prometheus, pytest.mark.slow]
INTERVAL_S, PERIOD_S, WINDOW_S = 0.4, 1.0, 5.0
COPIED = ("vllm:time_to_first_token_seconds_count", "vllm:num_requests_waiting")
"""Metrics that rules evaluate again, under the same names with another label."""
PART_S = 5.0
RATE_RPS = 8.0
"""60 % of what three replicas take within the targets."""


class Prometheus:
    """A Prometheus that can be killed, stopped and started again with its data."""

    def __init__(self, place: Path, targets: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        copies = [{"record": name, "expr": f'{name}{{via=""}}', "labels": {"via": "rule"}} for name in COPIED]
        rules = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text())["spec"]
        rules["groups"].append({"name": "copies", "interval": "700ms", "rules": copies})
        (place / "rules.yaml").write_text(yaml.safe_dump(rules))
        scrape = {"scrape_interval": f"{1000 * INTERVAL_S:.0f}ms", "evaluation_interval": "700ms"}
        job = {
            "job_name": "fleet",
            "scrape_timeout": "300ms",
            "http_sd_configs": [{"url": targets, "refresh_interval": "1s"}],
        }
        config = {"global": scrape, "scrape_configs": [job], "rule_files": ["rules.yaml"]}
        (place / "config.yaml").write_text(yaml.safe_dump(config))
        self._command = [
            "prometheus", f"--config.file={place / 'config.yaml'}", f"--storage.tsdb.path={place / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self._command, **quiet)  # type: ignore[call-overload]

    def disturb(self, rng: random.Random) -> None:
        """Kill and restart it, or stop it for a while."""
        down_s = rng.uniform(0.5, WINDOW_S)
        if rng.random() < 0.7:
            self.process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
            self.process.wait()
            time.sleep(down_s)
            self.start()
        else:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(down_s)
            self.process.send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return len(asked(self.url, COPIED[0])) >= 2
        return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def looping(tmp_path: Path) -> Iterator[tuple[Prometheus, str, list[dict[str, Any]]]]:
    """Run a fleet, a Prometheus and a loop; yield the records of the loop."""
    (tmp_path / "fleet.yaml").write_text(FLEET.replace("name: talk, ", "name: talk, headroomShare: 0.38, "))
    system = load_system(tmp_path / "fleet.yaml")
    with emulated(tmp_path / "fleet.yaml", "--scalable", "--startup", "0.5") as fleet:
        prometheus = Prometheus(tmp_path, f"{fleet.url}/emulator/targets")
        config = LoopConfig.model_validate(
            {
                "system": "fleet",
                "source": {"kind": "prometheus", "url": prometheus.url, "selector": 'via=""'},
                "kubernetes": {"url": fleet.url},
                "period": PERIOD_S,
                "window": WINDOW_S,
                "startup": 1,
                "forecast": "none",
                "drift": {"span": 10},
                "rules": {"scaleDownWindow": 2 * PERIOD_S},
            }
        )
        records: list[dict[str, Any]] = []
        cluster = Cluster(connected(config.kubernetes), config.kubernetes, system)  # type: ignore[arg-type]
        fetcher = Fetcher()
        source = reader_of(config.source, config.window_s, fetcher)  # type: ignore[arg-type]
        loop = Controller(system, config, source, cluster, records.append)
        stop = threading.Event()
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        try:
            yield prometheus, fleet.url, records
        finally:
            stop.set()
            thread.join()
            fetcher.close()
            prometheus.close()


@contextmanager
def sending(url: str) -> Iterator[None]:
    """Send evenly spaced requests, in parts of some seconds."""
    count = int(RATE_RPS * PART_S)
    due_ms = 1000 * np.arange(count) / RATE_RPS
    requests = Requests(np.full(count, 40), np.full(count, 30), due_ms)
    load = ServerLoad("talk", "chat", streams=True, rate_rps=RATE_RPS, requests=requests)
    stop, parts = threading.Event(), list[threading.Thread]()

    def send() -> None:
        begun_s = time.monotonic()
        while not stop.wait(max(0.0, begun_s + PART_S * len(parts) - time.monotonic())):
            parts.append(threading.Thread(target=drive, args=(url, [load])))
            parts[-1].start()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        for thread in (sender, *parts):
            thread.join()


def test_ten_outages_of_prometheus_scale_nothing(
    looping: tuple[Prometheus, str, list[dict[str, Any]]],
) -> None:
    """Outages of 0.5 to 5 s with a window of 5 s, seed 1, while rules are evaluated; the load is constant."""
    prometheus, url, records = looping
    with sending(url):
        found, before = disturbed(prometheus, records)
    assert {record["workloads"][0]["replicas"] for record in found} == {before}
    assert [event for record in found for event in record["events"]] == []
    held = sum(bool(record["holds"]) for record in found)
    assert 10 <= held < len(found)
    for record in found:
        if not record["holds"]:
            assert record["loads"]["talk"]["offered_rps"] == pytest.approx(RATE_RPS, rel=0.15)


def disturbed(prometheus: Prometheus, records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Disturb Prometheus ten times; return the records since then, and the replicas before."""
    rng = random.Random(1)
    until(prometheus.is_ready, 0.2)
    until(lambda: len(records) > 15 and not any(len(r["holds"]) for r in records[-5:]), 0.5)
    time.sleep(2 * WINDOW_S)
    settled = len(records)
    before = records[-1]["workloads"][0]["replicas"]
    assert before >= 2
    for _ in range(10):
        prometheus.disturb(rng)
        time.sleep(rng.uniform(1.5 * WINDOW_S, 2.5 * WINDOW_S))
    return records[settled:], before
