"""Slow checks of emulated fleets: a closed loop of planning, many replicas, and ends at any moment."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from commands import COUNTED, ROOT, Run
from emulated import FLEET, emulated

pytestmark = pytest.mark.slow
CHAT = ROOT / "specs" / "chat.yaml"
LAW = {"alpha": 6.5, "beta": 0.024, "gamma": 0.00014}
"""Token times of chat_8b on H100 in specs/chat.yaml."""
SHAPES = ((512, 128), (128, 256), (1500, 64))
USERS = (1, 4, 16, 48)


def iteration_ms(law: dict[str, float], batch: int, in_tokens: int, out_tokens: int) -> float:
    """Mean time of an iteration of a full batch (eq. 3): computed and read tokens of a request's life."""
    computed = (in_tokens + out_tokens) / (out_tokens + 1)
    read = in_tokens + out_tokens / 2
    return law["alpha"] + batch * (law["beta"] * computed + law["gamma"] * read)


def test_fit_of_driven_runs_returns_the_token_times(tmp_path: Path, run: Run) -> None:
    document = yaml.safe_load(CHAT.read_text())
    document["models"] = [one for one in document["models"] if one["acc"] == "H100"]
    reports: list[Path] = []
    for in_tokens, out_tokens in SHAPES:
        load = document["servers"][0]["currentAlloc"]["load"]
        load |= {"arrivalRate": 600, "avgInTokens": in_tokens, "avgOutTokens": out_tokens}
        load |= {"inTokensCV": 0, "outTokensCV": 0, "arrivalCV": 1}
        path = tmp_path / f"{in_tokens}.yaml"
        path.write_text(yaml.safe_dump(document))
        with emulated(path, "--share", "0.01") as fleet:
            for users in USERS:
                folder = tmp_path / f"{in_tokens}-{users}"
                flags = "--concurrency", users, "--requests", max(20, 6 * users), "--report", folder
                assert run("drive", path, fleet.url, *flags).status == 0
                reports += folder.iterdir()
    answer = run("fit", *reports, "--acc", "H100", "--json")
    assert answer.status == 0, answer.err
    found = answer.json["perfParms"]
    for shape in SHAPES:
        for users in USERS:
            fitted = iteration_ms({name: found.get(name, 0.0) for name in LAW}, users, *shape)
            assert fitted == pytest.approx(iteration_ms(LAW, users, *shape), rel=0.05)


@pytest.mark.parametrize("sample", ["serving-fleet", "multi-model-service"])
def test_fleets_are_as_simulated(sample: str, run: Run) -> None:
    with emulated(f"sample:{sample}", "--share", "0.001") as fleet:
        rows = run("drive", f"sample:{sample}", fleet.url, "--requests", "1000", "--json").json
    compared = [row for row in rows if row["metric"] in {"ITL", "end-to-end"} and row["simulated"]]
    assert len({row["server"] for row in compared}) > 1
    for row in compared:
        assert row["measured"] == pytest.approx(row["simulated"], rel=0.05), row
        assert row["measured_p95"] == pytest.approx(row["simulated_p95"], rel=0.05), row


def test_killed_emulators_leave_no_process_and_no_port(tmp_path: Path) -> None:
    rng, path = random.Random(52), tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    for _ in range(8):
        command = [sys.executable, "-m", "optimizer", "emulate", str(path), "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env=os.environ | COUNTED, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        ports = []
        if rng.random() < 0.7:  # otherwise it ends while it starts
            ports = [urlsplit(json.loads(process.stdout.readline())["url"]).port for _ in range(4)]
        time.sleep(rng.random())
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        process.wait()
        process.stdout.close()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        for port in ports:
            socket.create_server(("127.0.0.1", port or 0)).close()
