"""Reads the runs in GuideLLM's CSVs, and the load strategies of the runs of a report."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.readers.paths import find
from optimizer.fitting.readers.report import BenchmarkFile, cell_value
from optimizer.fitting.runs import Arrivals

SWEEP_FIRST = ("synchronous", "throughput")
"""First two strategies of a sweep; its constant rates are evenly spaced between the rates they achieve."""
CLOSED = (*SWEEP_FIRST, "concurrent")
STEADY = {"constant": Arrivals.CONSTANT, "poisson": Arrivals.POISSON}


def csv_runs(report: BenchmarkFile) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the rows of a CSV with their names for messages; three header lines give nested dicts.

    Raises:
        FitError: a row has a different number of cells than the header.
    """
    lines = list(csv.reader(io.StringIO(report.text)))
    heads = 3 if lines[0][0] == "Run Info" else 1
    for number, line in enumerate(lines[heads:], start=heads + 1):
        place = f"{report.name}: line {number}"
        if len(line) != len(lines[0]):
            raise FitError(
                f"{place} has {len(line)} cells under {len(lines[0])} headers; the file might be truncated"
            )
        row: dict[str, Any] = {}
        for *groups, name, cell in zip(*lines[:heads], line, strict=False):
            inner = row
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[name] = cell_value(cell)
        yield row, place


def strategies_of(items: Sequence[tuple[Mapping[str, Any], str]]) -> Iterator[Mapping[str, Any]]:
    """Yield the load strategy of each run: as stated, or from its name and the rates of the profile."""
    profile = find(items[0][0], "Run Info/Profile/")
    profile = profile if isinstance(profile, dict) else {}
    plan: Sequence[float] = profile.get("rate") or profile.get("streams") or ()
    achieved, strategies = profile.get("measured_rates"), (profile.get("type_"), profile.get("kind"))
    if "sweep" in strategies and isinstance(achieved, list) and len(achieved) > len(SWEEP_FIRST):
        plan = [0.0, 0.0, *sweep_rates(achieved)]
    for i, (item, _) in enumerate(items):
        own = find(item, "args/strategy", "config/strategy", "scheduler/strategy", "Args/strategy")
        strategy, _, amount = str(find(item, "Name", "Benchmark/Strategy/") or "").partition("@")
        planned = plan[i] if isinstance(plan, list) and i < len(plan) else None
        limit = {"max_concurrency": profile.get("max_concurrency")} if strategy == "throughput" else {}
        key = "rate" if strategy in STEADY else "streams"
        own = own if isinstance(own, dict) else {"type_": strategy, **limit}
        yield own if strategy in {"", *SWEEP_FIRST} or key in own else {key: amount or planned, **own}


def sweep_rates(achieved: Sequence[float]) -> list[float]:
    """Return the constant rates that a sweep offered, from the rates achieved by all its runs in order."""
    lone, most, *others = achieved
    return [float(rate) for rate in np.linspace(lone, most, len(others) + 1)[1:]]
