"""Reader of GuideLLM reports: JSON and YAML, and the CSVs of 2025 (one header line) and 2026 (three).

The CSVs have the same values under other keys. Sources: tags v0.2.0 to v0.8.0, `src/guidellm/schemas`,
`src/guidellm/benchmark/outputs/csv.py`. The format of version 0.1 is not supported.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.lengths import with_shared_lengths
from optimizer.fitting.readers.guidellm_plans import CLOSED, STEADY, csv_runs, strategies_of
from optimizer.fitting.readers.paths import Path, Table, find, measured, number_in, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, cell_value, day_of
from optimizer.fitting.record import RunRecord, TokenStats

_STATS = ("scheduler_metrics", "run_stats")
_COUNTS = (
    "metrics/request_totals",
    "request_totals",
    "run_stats/requests_made",
    "scheduler_metrics/requests_made",
)


def _count(status: str) -> tuple[Path, ...]:
    """Return the paths of the number of requests with a status, in all versions of the format."""
    title = status.title()
    return plain(*(f"{path}/{status}" for path in _COUNTS), f"{title} Requests", f"Request Counts/{title}/")


def _metric(key: str, row: str, column: str, statistic: str = "mean") -> tuple[str, str, str]:
    """Return the paths of a statistic in JSON and YAML, in the CSV of 2025 and in that of 2026."""
    words = statistic.replace("_", " ")
    return (
        f"metrics/{key}/successful/{statistic}", f"Successful {row} {words}",
        f"{column.replace('/', '/Successful ')}/{words.title()}",
    )  # fmt: skip


_ITL = ("inter_token_latency_ms", "Inter token latency ms", "Inter Token Latency/ms")
_TTFT = ("time_to_first_token_ms", "Time to first token ms", "Time to First Token/ms")
TABLE: Table = {
    "completed": plain("metrics/time_to_first_token_ms/successful/count") + _count("successful"),
    "failed": _count("errored"),
    "incomplete": _count("incomplete"),
    "duration_s": plain("duration", "run_stats/duration", "Duration", "Timings/Duration/Sec", "span"),
    "cooldown_s": plain("cooldown_duration", "Timings/Cooldown/Sec"),
    "ttft_ms": measured("ms", *_metric(*_TTFT)),
    "ttft_median_ms": measured("ms", *_metric(*_TTFT, "median")),
    "itl_ms": measured("ms", *_metric(*_ITL)),
    "latency_ms": measured("s", *_metric("request_latency", "Request latency", "Request Latency/Sec")),
    "client_delay_ms": measured("s", *(f"{path}/request_targeted_start_delay_avg" for path in _STATS)),
    "accepted_tokens": plain("metrics/output_tokens_per_iteration/successful/mean"),
    "cached_tokens": plain("metrics/cached_tokens/successful/mean"),
    **{
        f"{side}_{suffix}": plain(
            *_metric(
                f"{side}_token_count", f"{side.title()} token count", f"Token Metrics/{name} Tokens", key
            )
        )
        for side, name in (("prompt", "Input"), ("output", "Output"))
        for suffix, key in (("mean", "mean"), ("deviation", "std_dev"), ("least", "min"), ("most", "max"))
    },
}
"""Paths of the attributes of a run; TPOT is omitted, because it includes the TTFT since version 0.4."""
_MODEL = (
    "worker/backend_model", "config/backend/model", "backend/model", "Worker/backend_model",
    "Run Info/Backend//model",
)  # fmt: skip
_QUANTILES = "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"
IN_FLIGHT = 512
"""Default limit on requests in flight if a strategy sets none (GuideLLM's `max_concurrency`)."""


def _recognises(report: BenchmarkFile) -> bool:
    value, line = report.tree, report.first_line
    if isinstance(value, list):
        return any(isinstance(row, dict) and {"Run Id", "Successful Requests"} <= row.keys() for row in value)
    if isinstance(value, dict):
        items, known = value.get("benchmarks"), value.keys() & {"args", "config", "metadata"}
        has_requests = find(items, "*/metrics") is not None or find(items, "*/request_totals") is not None
        return isinstance(items, list) and (bool(known) or not items or has_requests)
    return line.startswith("Type,Run Id") or (line.startswith("Run Info,") and ",Timings" in line)


def _read(report: BenchmarkFile) -> RunReport:
    """Read all runs of a report.

    Raises:
        FitError: the report has no runs or is truncated, or an item has a wrong type.
    """
    items = list(_items(report))
    if not items:
        raise FitError(
            f"{report.name}: the report has no runs; the benchmark was interrupted, or the file is truncated"
        )
    runs = [
        _run(item, place, strategy)
        for (item, place), strategy in zip(items, strategies_of(items), strict=True)
    ]
    first = items[0][0]
    version = find(report.tree, "metadata/guidellm_version")
    start = find(first, "start_time", "run_stats/start_time", "Start Time", "Timings/Start Time/")
    notes = dict.fromkeys(note for item, _ in items for note in _notes(item))
    return RunReport(
        tuple(with_shared_lengths(runs)),
        f"GuideLLM {version}" if version else "GuideLLM",
        text_at(first, *_MODEL),
        day_of(start),
        tuple(notes),
    )


def _items(report: BenchmarkFile) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each run as nested dicts, with its name for messages."""
    if isinstance(report.tree, dict):
        runs = [(item, f"{report.name}: benchmarks[{i}]") for i, item in enumerate(report.tree["benchmarks"])]
    elif isinstance(report.tree, list):
        runs = [
            ({key: cell_value(cell) for key, cell in row.items()} if isinstance(row, dict) else row, place)
            for row, place in report.rows
        ]
    else:
        runs = list(csv_runs(report))
    for item, place in runs:
        if not isinstance(item, dict) or not ("metrics" in item or "Name" in item or "Benchmark" in item):
            raise FitError(
                f"{place}: this is not a GuideLLM run, unlike the others; pass the reports separately"
            )
        yield item, f"{place} ({item['Name']})" if "Name" in item else place


def _run(item: Mapping[str, Any], place: str, strategy: Mapping[str, Any]) -> RunRecord:
    start, end = number_in(item.get("start_time")), number_in(item.get("end_time"))
    span = None if start is None or end is None else end - start
    changed = record({**item, "span": span}, TABLE, place, exact_itl=True, timed=True, is_busy=True)
    name = str(strategy.get("type_") or strategy.get("kind") or "")
    rate = number_in(strategy.get("rate"))
    limits = (number_in(strategy.get(key)) for key in ("streams", "max_concurrency"))
    users = next((limit for limit in limits if limit is not None), float(IN_FLIGHT))
    changed = replace(
        changed,
        users=1.0 if name == "synchronous" else users,
        sent_rps=changed.sent / changed.duration_s if changed.duration_s else None,
        prompt=_with_ends(item, changed.prompt, "Prompt", "Input"),
        output=_with_ends(item, changed.output, "Output", "Output"),
    )
    if name in STEADY:
        burst = math.floor(rate) if rate and strategy.get("initial_burst") else 0
        return replace(changed, arrivals=STEADY[name], offered_rps=rate or 0.0, burst=burst)
    known = ", ".join((*CLOSED, *STEADY))
    unusable = f"the strategy {name!r} cannot be replayed; known are {known}" if name not in CLOSED else None
    return replace(changed, unusable=unusable)


def _with_ends(item: Mapping[str, Any], token_stats: TokenStats, row: str, column: str) -> TokenStats:
    """Return length statistics with minimum and maximum from the outermost quantiles of a CSV."""
    ends = find(
        item,
        f"Successful {row} token count {_QUANTILES}",
        f"Token Metrics/Successful {column} Tokens/Percentiles",
    )
    known = isinstance(ends, list) and ends
    least, most = map(number_in, (ends[0], ends[-1])) if known else (None, None)
    return token_stats if least is None or most is None else token_stats._replace(least=least, most=most)


def _notes(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on aspects of a run that the replay ignores."""
    if number_in(
        find(item, "warmup_duration", "config/warmup/percent", "config/warmup/value", "Timings/Warmup/Sec")
    ):
        yield "the report excludes a warm-up: runs are assumed to start with an empty server"
    if number_in(find(item, "config/strategy/rampup_duration")):
        yield "the client ramped up (rampup_duration): runs are assumed to start at their full rate"


READER = Reader("GuideLLM (JSON, YAML, CSV)", _recognises, _read)
