"""A stopped service writes nothing on stderr but its own lines, however and whenever it is stopped."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from service_runs import ROOT, as_a_program

from rest_server.app import WORKER_START_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sends signals to process groups")

STARTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
print(flush=True)
from optimizer.__main__ import main
sys.exit(main())
"""
"""Runs the command; writes an empty line when Python itself, whose start has no handlers, has started."""
SPAN_S = 10.0
STARTING_S = 5.0
"""Time in which the solver processes start [s]."""
INTERRUPTED = "inferplan: interrupted"


def lines_of_stopped(number: int, folder: Path) -> list[str]:
    """Stop a service at a random moment in a random way; return what it wrote on stderr."""
    chance = random.Random(number)
    kind = chance.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL])
    alone = kind == signal.SIGKILL  # nothing ends the workers of a killed supervisor
    options = () if alone else chance.choice([(), (), ("--workers", "2")])
    everyone = kind != signal.SIGKILL and chance.random() < 0.5  # as Ctrl-C in a terminal does
    with (folder / str(number)).open("w+b") as log:
        command = [sys.executable, "-c", STARTED, "serve", "--port", "0", *options]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        process.stdout.readline()
        if number % 4:  # most while the solver processes start, the rest at any moment
            until(lambda: os.fstat(log.fileno()).st_size > 0)
            time.sleep(chance.uniform(0, STARTING_S))
        else:
            time.sleep(chance.uniform(0, SPAN_S))
        for wait_s in (0, chance.uniform(0, 0.5)) if chance.random() < 0.4 else (0,):
            time.sleep(wait_s)
            if process.poll() is None:
                (os.killpg if everyone else os.kill)(process.pid, kind)
        status = process.wait(PATIENCE_S)
        assert status in {0, 130, -kind}, (number, kind, status)
        process.stdout.close()
        until(partial(_has_ended, process.pid))
        log.seek(0)
        return log.read().decode().splitlines()


def _has_ended(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("moments", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_a_stopped_service_writes_its_own_lines_only(tmp_path: Path, moments: int) -> None:
    with ThreadPoolExecutor(3) as threads:
        for number, lines in enumerate(
            threads.map(partial(lines_of_stopped, folder=tmp_path), range(1, moments + 1))
        ):
            for line in lines:
                assert line == INTERRUPTED or line.startswith("{"), (number, lines)
                assert line == INTERRUPTED or "traceback" not in json.loads(line), (number, lines)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_service_does_not_wait_for_workers_that_are_starting(tmp_path: Path, kind: signal.Signals) -> None:
    sleeping = f"import sys, time\nif 'spawn_main' in str(sys.orig_argv): time.sleep({PATIENCE_S})\n"
    (tmp_path / "sitecustomize.py").write_text(sleeping, "utf-8")
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    with as_a_program("--workers", "2", **environment) as here:
        until(lambda: len(here.descendants()) == 3)  # with the resource tracker
        time.sleep(1)
        begun_s = time.monotonic()
        assert here.end(kind)[0] == 0
        assert time.monotonic() - begun_s < WORKER_START_S / 2
