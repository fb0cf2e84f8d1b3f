"""A kind of replica that is one folder and one edited table: everything else takes it as it is.

The tree is copied, `tests/streams` becomes a folder of `optimizer/kinds`, and the rest runs in a process of
its own: real-time streams, each of which holds a place for its duration.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
EDITS = {
    "from optimizer.documents import Document\n": (
        "from optimizer.documents import Document\nfrom optimizer.kinds import streams\n"
    ),
    "(TokenBatching(), BatchServers())": "(TokenBatching(), BatchServers(), streams.Streams())",
    "class LawFields(": "class LawFields(streams.LawFields, ",
    "class ServerFields(": "class ServerFields(streams.ServerFields, ",
    "class KindPoolFields(": "class KindPoolFields(streams.PoolFields, ",
}
"""What is edited in the table of kinds."""
RATE_RPM, STREAM_MS, PLACES, LARGEST_LOSS = 120.0, 90_000.0, 24, 0.02
LOAD = {"arrivalRate": RATE_RPM}
SYSTEM = {
    "accelerators": [{"name": "A", "type": "A", "cost": 10}, {"name": "B", "type": "B", "cost": 30}],
    "models": [
        {"name": "voice", "acc": "A", "maxBatchSize": PLACES, "streamParms": {"start": 40}},
        {"name": "voice", "acc": "B", "maxBatchSize": 2 * PLACES, "streamParms": {"start": 30}},
        {"name": "chat", "acc": "A", "maxBatchSize": 8, "decodeParms": {"alpha": 7, "beta": 0.1}},
    ],
    "serviceClasses": [
        {
            "name": "c",
            "modelTargets": [
                {"model": "voice", "slo-ttft": 100, "maxLoss": LARGEST_LOSS},
                {"model": "chat", "slo-ttft": 700},
            ],
        }
    ],
    "servers": [
        {
            "name": "calls",
            "class": "c",
            "model": "voice",
            "streamDuration": STREAM_MS,
            "streamCV": 1.5,
            "currentAlloc": {"load": LOAD},
        },
        {
            "name": "text",
            "class": "c",
            "model": "chat",
            "currentAlloc": {"load": LOAD | {"avgInTokens": 100, "avgOutTokens": 20}},
        },
    ],
    "count": [{"type": "A", "count": 40}, {"type": "B", "count": 40}],
}


def erlang_b(offered: float, places: int) -> float:
    """Return the loss probability of M/G/n/n from its truncated Poisson distribution, term by term."""
    terms = [1.0]
    for n in range(1, places + 1):
        terms.append(terms[-1] * offered / n)
    return terms[-1] / sum(terms)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the copy answers, from a process of its own."""
    copy = tmp_path_factory.mktemp("copy")
    skipped = shutil.ignore_patterns("__pycache__")
    for package in ("optimizer", "rest_server"):
        shutil.copytree(ROOT / package, copy / package, ignore=skipped)
    shutil.copytree(ROOT / "tests" / "streams", copy / "optimizer" / "kinds" / "streams", ignore=skipped)
    table = copy / "optimizer" / "kinds" / "table.py"
    text = table.read_text(encoding="utf-8")
    for before, after in EDITS.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    table.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "tests" / "streams" / "asking.txt", copy / "asking.py")
    found = subprocess.run(
        [sys.executable, "asking.py"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        input=json.dumps(SYSTEM),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    answers: dict[str, Any] = json.loads(found.stdout)
    assert answers["home"] == str(copy / "optimizer")
    return answers
