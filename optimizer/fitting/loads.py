"""Converts a reported run to the run of a single engine, which can be replayed."""

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

from optimizer.errors import FitError
from optimizer.fitting.checks import (
    IDLE,
    cleaned,
    failed_share,
    failures,
    in_flight,
    ms,
    tell_conditions,
    time_per_token,
    why_broken,
    why_other_load,
    without_broken_mean,
)
from optimizer.fitting.notes import LEFT_OUT, Note, Say
from optimizer.fitting.record import RunRecord
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements
from optimizer.quantities import counted, quantity

FEW_FAILED = 0.01
"""Share of failed requests up to which failures are ignored."""
CROWDED = 1.05
"""Ratio of requests in flight to users above which the rate or the latency must include other requests."""
LIVES = 6
"""Number of requests per user above which the start and the end of a run have little influence."""
NOT_SENT, CLIENT_DELAY_MS = 0.95, 10.0
"""Criteria for a client that is the bottleneck (R1): it sends less than this share of the offered rate, and
its median delay exceeds this time [ms].
"""
SHARED = (
    "offered_rps", "sent_rps", "throughput_rps", "tokens_rps", "users", "in_flight", "requested", "completed",
    "failed", "incomplete",
)  # fmt: skip
"""Attributes of a record that are divided by the number of equal engines."""


class Engines(NamedTuple):
    """Engines behind the measured address; None if unknown."""

    replicas: int | None = None
    cards: int | None = None
    """Number of accelerators of one engine."""


class Replayed(NamedTuple):
    """The run to replay (None if it is excluded), and notes on the decisions about it."""

    run: BenchmarkRun | None
    notes: tuple[Note, ...]


def as_replayed(record: RunRecord, engines: Engines) -> Replayed:
    """Convert a record to the run of one engine, or exclude it; return notes on all decisions.

    Raises:
        FitError: the record does not determine how many engines were measured.
    """
    notes: list[Note] = []

    def say(topic: str, text: str) -> None:
        notes.append(Note(record.source.rpartition("/")[2], topic, text))

    found = without_broken_mean(record, say)
    itl_ms: float | None = None
    reason = why_broken(found)
    if reason is None:
        found = cleaned(found, say)
        itl_ms = time_per_token(found, say)
        reason = why_other_load(found, itl_ms)
    if reason is not None:
        say(LEFT_OUT, f"is left out: {reason}")
        return Replayed(None, tuple(notes[-1:]))
    tell_conditions(found, say)
    loaded = _loaded(_of_one_engine(found, engines, say), itl_ms, say)
    return Replayed(_run(loaded, itl_ms, say), tuple(notes))


def _of_one_engine(record: RunRecord, engines: Engines, say: Say) -> RunRecord:
    """Return the record of one engine: rates and counts divided by the number of engines.

    Raises:
        FitError: the record has a text that might state a number of engines, or its engines are not equal.
    """
    known, stated = engines.replicas, record.replicas
    if known is None and record.split is not None:
        raise FitError(
            f"{record.file}: prefill and decode ran on separate engines ({record.split}), so they give no "
            "profile of one engine; --replicas N fits them as N equal engines"
        )
    count = int(re.findall(r"\d+", record.hint or "0")[0])
    if count and known is None and engines.cards is None and not stated and record.cards != count:
        raise FitError(
            f"{record.file} names {record.hint}: give --replicas {count} for {count} engines of one card, or "
            f"--cards {count} for one engine of {count} cards"
        )
    several = float(known or (stated if stated and stated >= 1 else 1.0))
    if several == 1:
        return record
    field = "--replicas" if known else record.fields.get("replicas", "replicas")
    say(
        "replicas",
        f"{quantity(several)} replicas ({field}): rates and users are divided by {quantity(several)}; cards "
        "of one replica: --cards",
    )
    whole = {name: getattr(record, name) for name in SHARED}
    parts: dict[str, Any] = {
        name: None if value is None else value / several for name, value in whole.items()
    }
    return replace(record, **parts, burst=int(record.burst / several))


def _loaded(record: RunRecord, itl_ms: float | None, say: Say) -> RunRecord:
    """Return the record with the load that the engine really saw (A5, L1, L2, R1)."""
    busy, done, users = in_flight(record, itl_ms), record.completed or 0.0, record.users or 1.0
    failed = failed_share(record) > FEW_FAILED
    if record.is_rated:
        return _as_sent(record, busy, say, kept=1 - failed_share(record) if failed else 1.0)
    if failed:
        if busy is None or (busy < IDLE * users and done < LIVES * users):
            say("failed", f"{failures(record)}; the others are fitted as if all users had been in flight")
            return record
        say("failed", f"{failures(record)}; in flight is taken from rate times latency, {quantity(busy, 3)}")
        return replace(record, users=max(busy, 1.0))
    if busy is None or done < LIVES * users:
        return record
    return _with_pauses(record, busy, users, say)


def _with_pauses(record: RunRecord, busy: float, users: float, say: Say) -> RunRecord:
    """Return the record with the think time of its users, if they paused between requests (L1, L2)."""
    if busy < IDLE * users and record.throughput_rps:
        think_ms = 1000 * (users - busy) / record.throughput_rps
        say(
            "think",
            f"of {counted(users, 'user')} {quantity(busy, 3)} were in flight; {quantity(think_ms / 1000, 2)} "
            "s between requests are taken as think time",
        )
        return replace(record, think_ms=think_ms)
    if busy > CROWDED * users:
        say(
            "crowded",
            f"rate times latency is {quantity(busy, 3)} in flight, more than the {counted(users, 'user')}: "
            "its rate or its latency counts other requests",
        )
    return record


def _as_sent(record: RunRecord, busy: float | None, say: Say, *, kept: float) -> RunRecord:
    """Return the record with the rate of successful requests, or as that of a bottlenecked client (R1)."""
    offered, sent, delay = record.offered_rps or math.inf, record.sent_rps, record.client_delay_ms
    if not math.isfinite(offered):
        return record
    if kept < 1:
        rate = quantity(kept * offered)
        say("failed", f"{failures(record)}; the rate is that of the others, {rate} requests/s")
    held_up = sent is not None and sent < NOT_SENT * offered and delay is not None and delay > CLIENT_DELAY_MS
    if not held_up or busy is None:
        return replace(record, offered_rps=kept * offered)
    late = f"{record.fields.get('client_delay_ms', 'delay')} {quantity((delay or 0.0) / 1000, 3)} s"
    say(
        "client",
        f"the client sent {quantity(sent or 0.0)} of {quantity(offered)} requests/s ({late}): replayed with "
        f"{max(round(busy), 1)} in flight",
    )
    return replace(record, offered_rps=None, users=max(busy, 1.0))


def _run(record: RunRecord, itl_ms: float | None, say: Say) -> BenchmarkRun:
    rated, ttft_ms = record.is_rated, record.ttft_median_ms
    if ttft_ms is None and record.ttft_ms is not None:
        say("means", f"no median TTFT is stated: the mean, {ms(record.ttft_ms)}, stands for it")
        ttft_ms = record.ttft_ms
    if ttft_ms is None:
        say("no TTFT", "no time to first token is stated")
    requests = record.completed if record.lost or record.requested is None else record.requested
    if requests is not None and not math.isfinite(requests):
        requests = record.completed
    prompts, answers = record.drawn or (record.prompt.counts, record.output.counts)
    return BenchmarkRun(
        prompts,
        answers,
        record.arrivals if rated else Arrivals.CLOSED,
        rate_rps=record.offered_rps if rated else None,
        requests=None if record.timed or requests is None else max(round(requests), 1),
        duration_s=record.duration_s if record.timed else None,
        max_in_flight=None if record.users is None else max(round(record.users), 1),
        burst=record.burst,
        arrival_cv=record.arrival_cv if rated else None,
        think_ms=record.think_ms,
        measured=RunMeasurements(ttft_ms, itl_ms, record.throughput_rps),
        completed=None if record.completed is None else round(record.completed),
        source=record.source,
    )
