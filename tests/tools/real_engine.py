"""Record runs of a real engine by number of users, and compare an emulated one at users that were not fitted.

    python tests/tools/real_engine.py record http://127.0.0.1:8900 tests/data/cpu_vllm
    python tests/tools/real_engine.py compare tests/data/cpu_vllm

The engine is any server of completions that calls its model `chat`, with a batch of at most 16 requests and
512 tokens. The first run of each shape warms it up and is not kept. `tests/data/cpu_vllm/README.md` says
how the kept runs were made.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "rest_server")]
from emulated import emulated  # noqa: E402

SHAPES = ((64, 64), (256, 64), (64, 128))
"""Mean lengths of prompts and answers [tokens]."""
FITTED, HELD_OUT = (1, 2, 8, 16), (4, 12)
"""Users at once in the runs that are fitted, and in those that are compared."""
ROUNDS = 2
"""Recorded runs of each shape and number of users, in a random order, so that all see the same machine."""
METRICS = ("mean_ttft_ms", "mean_itl_ms")
UNKNOWN = {"alpha": 10.0, "beta": 0.1, "gamma": 0.001}
"""Token times for the document of a recording, which only needs lengths."""


def document_of(shape: tuple[int, int], times: dict[str, float]) -> dict[str, Any]:
    """Return a document with one server on one replica."""
    load = {"arrivalRate": 1, "avgInTokens": shape[0], "avgOutTokens": shape[1]}
    model = {"name": "chat", "acc": "CPU", "queueModel": "continuous", "maxBatchSize": 16}
    model |= {"maxNumTokens": 512, "perfParms": times}
    return {
        "accelerators": [{"name": "CPU", "type": "CPU", "cost": 1}],
        "count": [{"type": "CPU", "count": 1}],
        "models": [model],
        "serviceClasses": [
            {"name": "Any", "modelTargets": [{"model": "chat", "slo-itl": 1000, "slo-ttft": 100000}]}
        ],
        "servers": [
            {
                "name": "chat", "class": "Any", "model": "chat", "minNumReplicas": 1,
                "currentAlloc": {"load": load | {"inTokensCV": 0.3, "outTokensCV": 0.3}},
            }
        ],
    }  # fmt: skip


def inferplan(*arguments: object) -> str:
    """Return the output of a command."""
    command = [sys.executable, "-m", "optimizer", *map(str, arguments)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    return found.stdout


def driven(path: Path, url: str, users: int) -> dict[str, Any]:
    """Return the report of users who send requests of a document."""
    with tempfile.TemporaryDirectory() as folder:
        flags = "--concurrency", users, "--requests", max(20, 5 * users), "--report", folder
        inferplan("drive", path, url, *flags)
        (report,) = Path(folder).iterdir()
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def record(url: str, folder: Path) -> None:
    """Write the reports of all shapes and users, in a random order in each round."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    runs = [(shape, users) for shape in SHAPES for users in FITTED + HELD_OUT]
    with tempfile.TemporaryDirectory() as scratch:
        paths = {shape: Path(scratch) / f"{shape[0]}-{shape[1]}.yaml" for shape in SHAPES}
        for shape, path in paths.items():
            path.write_text(yaml.safe_dump(document_of(shape, UNKNOWN)))
            driven(path, url, max(FITTED))
        for number in range(ROUNDS):
            for shape, users in rng.sample(runs, len(runs)):
                found = driven(paths[shape], url, users)
                target = folder / name_of(shape, users, number)
                target.write_text(json.dumps(found, separators=(",", ":")) + "\n")
                print(target.name, {key: round(found[key], 2) for key in METRICS}, flush=True)


def name_of(shape: tuple[int, int], users: int, number: int) -> str:
    """Return the name of the file of a run in a round."""
    return f"i{shape[0]}-o{shape[1]}-users{users}-{number}.json"


def recorded(folder: Path, shape: tuple[int, int], users: int) -> dict[str, float]:
    """Return the mean latencies of the rounds of a run [ms]."""
    reports = [json.loads((folder / name_of(shape, users, i)).read_text()) for i in range(ROUNDS)]
    return {metric: sum(report[metric] for report in reports) / ROUNDS for metric in METRICS}


def fitted_times(folder: Path) -> dict[str, float]:
    """Return the token times of the runs that are fitted."""
    runs = ((shape, users, number) for shape in SHAPES for users in FITTED for number in range(ROUNDS))
    reports = [folder / name_of(*run) for run in runs]
    found: dict[str, float] = json.loads(inferplan("fit", *reports, "--acc", "CPU", "--json"))["perfParms"]
    return found


def compared(folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """Yield run, metric, recorded and emulated value [ms] of all runs that are not fitted."""
    times = fitted_times(folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "document.yaml"
        for shape in SHAPES:
            path.write_text(yaml.safe_dump(document_of(shape, times)))
            with emulated(path) as fleet:
                for users in HELD_OUT:
                    real = recorded(folder, shape, users)
                    runs = [driven(path, fleet.url, users) for _ in range(ROUNDS)]
                    for metric in METRICS:
                        found = sum(run[metric] for run in runs) / ROUNDS
                        name = f"{shape[0]} in, {shape[1]} out, {users} users"
                        yield name, metric, real[metric], found


def main() -> None:
    """Run the command line."""
    if sys.argv[1] == "record":
        record(sys.argv[2], Path(sys.argv[3]))
        return
    print(fitted_times(Path(sys.argv[2])))
    for run, metric, real, found in compared(Path(sys.argv[2])):
        print(f"{run:28} {metric:13} real {real:8.2f}  emulated {found:8.2f}  {found / real - 1:+.1%}")


if __name__ == "__main__":
    main()
