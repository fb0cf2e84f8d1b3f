"""Errors of fits of kept and visible benchmarks, one line each: a table of docs/fidelity.md.

    python tests/benchmarks/fit_errors.py --reference DIR [--only NAME] [--json FILE]

DIR holds `sweeps`, `trials`, `trials5` and `benchmark-reports`. Each benchmark is fitted. The errors of its
fitted runs and of the runs kept apart are the means of |predicted / measured − 1| for each metric. The
files that `--json` writes for two versions can be compared.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optimizer.errors import InferplanError
from optimizer.fitting.fit import fit
from optimizer.fitting.options import FitOptions, MeasuredSetup, ServerSettings, Stated
from optimizer.fitting.prediction import predict
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.readers.table import parse_benchmark, read_benchmark
from optimizer.fitting.runs import BenchmarkRun

METRICS = ("ttft_ms", "itl_ms", "throughput_rps")


class Case(NamedTuple):
    """A benchmark: reports to fit, and runs to predict."""

    name: str
    reports: Sequence[Benchmark]
    rest: Sequence[BenchmarkRun]
    options: FitOptions


def cases(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name of each benchmark and a function that reads it."""
    for name, files, rest, options in (
        ("trials5/10-few-requests-a-user", "runs.json", None, _options("gpt-oss-20b", "H200")),
        ("trials5/12-lengths-assumed-equal", "base_fit.json", "base_rest.json", _dense(256)),
        ("trials5/12-lengths-assumed-equal", "spec_fit.json", "spec_rest.json", _dense(256)),
        ("trials5/15-experts-concave", "fit.csv", "rest.csv", _options("deepseek-v3", "B200", 8, "fp4", 256)),
        ("trials5/17-flat-law", "flat.csv", None, _options("qwen3-235b-a22b", "H200", 4, "fp8", 1024)),
        ("trials5/17-flat-law", "sweep.csv", None, _options("qwen3-235b-a22b", "H200", 4, "fp8", 1024)),
        ("trials/01-fit-crash", "n1.csv", None, _options()),
        ("trials/01-fit-crash", "n2.csv", None, _options()),
        ("trials/01-fit-crash", "two-rates.csv", None, _options()),
        ("trials/02-spec-decode-itl", "spec.json", "one.csv", _options()),
        ("trials/07-failed-requests", "aiperf-*.json", None, _options()),
        ("trials/07-failed-requests", "vllm.json", None, _options()),
        ("trials/09-guidellm-negative", "good.json", None, _options()),
        ("trials/10-replicas-behind-gateway", "results.json", None, _options("m", "L40S")),
        ("trials/11-inference-perf-itl", "stage_*.json", None, _options("llama-3.1-8b", "H100")),
    ):  # fmt: skip
        yield f"{name}/{files}", lambda a=folder / name, b=files, c=rest, d=options: _files(a, b, c, d)
    for path in sorted(folder.glob("benchmark-reports/visible/*/expected.json")):
        yield path.parent.name, lambda path=path: _twin(path)
    for path in sorted(folder.glob("sweeps/*/*")):
        if path.suffix in {".json", ".csv"}:
            for kept in ((), (0, 3, 5), (0, 5), (0, 3, 5, 7)):
                name = f"{path.parent.name}/{path.stem}{list(kept) if kept else ''}"
                yield name, lambda path=path, kept=kept: _sweep(path, kept)


def _options(
    model: str | None = None, acc: str = "unknown", cards: int | None = None, weights: str | None = None,
    seqs: int | None = None, kv: int | None = None,
) -> FitOptions:  # fmt: skip
    key = MeasuredSetup(model, acc, cards, weights)
    return FitOptions(leave_out=False, key=key, settings=ServerSettings(kv, seqs))


def _dense(seqs: int) -> FitOptions:
    return _options("qwen3-8b", "H100", seqs=seqs)


def _files(folder: Path, files: str, rest: str | None, options: FitOptions) -> Case:
    stated = Stated(cards=options.key.cards)
    reports = [read_benchmark(str(path), stated) for path in sorted(folder.glob(files))]
    kept = read_benchmark(str(folder / rest), stated).runs if rest else ()
    return Case("", reports, kept, options)


def _twin(path: Path) -> Case:
    expected = json.loads(path.read_text())
    command = expected["command"]
    names = [name for name in command if (path.parent / name).is_file()]
    acc = command[command.index("--acc") + 1]
    reports = [read_benchmark(str(path.parent / name)) for name in names]
    runs: list[BenchmarkRun] = []
    for point in expected["accept"][0]["points"]:
        row = point["row"] | point["expect"]
        text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
        runs += parse_benchmark("p.csv", text).runs
    return Case("", reports, runs, _options("m", acc))


def _sweep(path: Path, kept: Sequence[int]) -> Case:
    """Fit runs of one shape; the kept ones are numbered by rate, the lowest (one at a time) first."""
    report = read_benchmark(str(path))
    runs = sorted(report.runs, key=lambda run: (run.is_full, run.measured.throughput_rps or 0.0))
    chosen = [runs[i] for i in kept if i < len(runs)] if kept else runs
    rest = [run for run in runs if run not in chosen]
    capacity = 447_936 if "llama" in str(path) else 226_992
    return Case("", [report._replace(runs=tuple(chosen))], rest, _options("m", seqs=512, kv=capacity))


def errors(pairs: Sequence[tuple[Any, BenchmarkRun]]) -> dict[str, float]:
    """Return the mean relative error of each metric."""
    found = {}
    for metric in METRICS:
        off = [
            abs(getattr(one, metric) / measured - 1)
            for one, run in pairs
            if (measured := getattr(run.measured, metric)) and getattr(one, metric)
            if metric != "throughput_rps" or run.is_full
        ]
        if off:
            found[metric] = float(np.mean(off))
    return found


def measure(name: str, case: Case) -> dict[str, Any]:
    began = time.process_time()
    try:
        profile = fit(case.reports, case.options)
    except InferplanError as error:
        return {"name": name, "refused": str(error)}
    fitted = [point for point in profile.points if point.fitted]
    predicted = predict(profile, [point.run() for point in fitted])
    rest = predict(profile, case.rest)
    compared = [(one, point.run()) for one, point in zip(predicted, fitted, strict=True)]
    law = {key: value for key, value in profile.iteration.model_dump(by_alias=True).items() if value}
    return {
        "name": name, "fitted": errors(compared),
        "rest": errors(list(zip(rest, case.rest, strict=True))), "law": law,
        "seconds": time.process_time() - began,
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"{row['name']:48} refused: {row['refused'][:90]}"
    cells = []
    for of in ("fitted", "rest"):
        cells += [f"{100 * row[of][metric]:6.1f}" if metric in row[of] else "     -" for metric in METRICS]
    law = " ".join(f"{key} {value:.3g}" for key, value in row["law"].items())
    return f"{row['name']:48} {' '.join(cells)}  {row['seconds']:5.1f} s  {law}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    rows = []
    for name, read in cases(given.reference):
        if re.search(given.only, name):
            rows.append(measure(name, read()))
            print(shown(rows[-1]), flush=True)
            if given.json:
                given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
