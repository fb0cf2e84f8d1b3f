"""Table of the readers of benchmark files: a new format needs a module in this package and an entry here."""

import os
from collections.abc import Sequence
from pathlib import Path

from optimizer.errors import FitError
from optimizer.fitting.loads import as_replayed
from optimizer.fitting.options import Stated
from optimizer.fitting.readers import (
    aiperf,
    guidellm,
    inference_perf,
    llmd,
    points,
    trtllm_bench,
    vllm_family,
)
from optimizer.fitting.readers.paths import find
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader
from optimizer.schema.files import read_text

_MODULES = (guidellm, vllm_family, inference_perf, aiperf, llmd, trtllm_bench, points)
READERS: tuple[Reader, ...] = tuple(module.READER for module in _MODULES)
"""Readers of all formats, in the order in which they are tried."""

UNREADABLE: tuple[tuple[str, ...], ...] = (
    ("llmperf", "its inter-token latency includes the TTFT and counts with another tokeniser",
     "results/inter_token_latency_s", "results_inter_token_latency_s_mean"),
    ("GuideLLM 0.1", "it has no mean times", "benchmarks/*/request_count", "benchmarks/*/results"),
    ("AIPerf before 0.2", "its tree has changed since", "records/ttft", "records/time_to_first_token"),
    ("llm-d's version 0.1", "its times have several units; the benchmark writes 0.2", "scenario/host"),
    ("GuideLLM in HTML", "its runs have no labels; give the JSON of the same run", "GuideLLM</title>",
     "window.benchmarks", "window.runInfo"),
    ("AIPerf's CSV", "give the JSON of the same run", "Metric,avg,"),
    ("single requests", "give the summary of the run", "*/metrics/request_latency", "*/info/input_tokens"),
    ("k6", "it counts no tokens", "metrics/http_req_duration", "metrics/http_reqs"),
    ("MLPerf", "it counts no tokens", "MLPerf Results Summary"),
    ("locust", "it counts no tokens", "Type,Name,Request Count"),
)  # fmt: skip
"""Unsupported tools: name, reason, and marks that identify a report (paths of keys, or text near the start).
"""


def read_benchmark(
    path: str | os.PathLike[str],
    stated: Stated | None = None,
    name: str | None = None,
) -> Benchmark:
    """Read a report of any known format.

    Args:
        path: file of the report.
        stated: facts about its runs that it does not contain; None for none.
        name: name of the file in messages; None selects the path.

    Raises:
        FitError: the file is empty, truncated, of unknown format, or ambiguous.
        SpecError: the file cannot be read.
    """
    return _read(BenchmarkFile(name or str(path), read_text(path), Path(path)), stated or Stated())


def parse_benchmark(name: str, text: str, stated: Stated | None = None) -> Benchmark:
    """Read a report from its text; other arguments and errors are those of `read_benchmark`."""
    return _read(BenchmarkFile(name, text), stated or Stated())


def distinct_names(paths: Sequence[str]) -> list[str]:
    """Return the name of each file, with as many of its folders as distinguish it from the other files."""
    parts = [Path(path).parts for path in paths]
    names = []
    for own in parts:
        lengths = (n for n in range(1, len(own)) if all(one == own or one[-n:] != own[-n:] for one in parts))
        names.append("/".join(own[-next(lengths, len(own)) :]))
    return names


def _read(report: BenchmarkFile, stated: Stated) -> Benchmark:
    if not report.text.strip():
        raise FitError(f"{report.name}: the file is empty; run the benchmark again, or leave it out")
    reader = next((reader for reader in READERS if reader.recognises(report)), None)
    if reader is None:
        raise FitError(_unknown(report))
    benchmark = reader.read(report)
    if isinstance(benchmark, Benchmark):
        return benchmark
    replayed = [as_replayed(run, stated) for run in benchmark.runs]
    cards = {run.cards for run in benchmark.runs}
    return Benchmark(
        tuple(one.run for one in replayed if one.run is not None),
        benchmark.tool,
        benchmark.model,
        benchmark.date,
        benchmark.notes,
        tuple(note for one in replayed for note in one.notes),
        cards.pop() if len(cards) == 1 else None,
        max((run.accepted_tokens or 1.0 for run in benchmark.runs), default=1.0),
    )


def _unknown(report: BenchmarkFile) -> str:
    """Describe why a report cannot be read, and list the supported formats."""
    names = ", ".join(reader.name for reader in READERS)
    known = f"known are {names} with the columns {', '.join(points.REQUIRED)}"
    for tool, why, *marks in UNREADABLE:
        if find(report.tree, *marks) is not None or any(mark in report.text[:2000] for mark in marks):
            return f"{report.name}: a report of {tool} cannot be fitted: {why}; {known}"
    return f"{report.name}: not a known benchmark report; {known}"
