"""Converts a reported run to the run of a single engine, which can be replayed."""

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import FitError
from optimizer.fitting.checks import (
    CROWDED,
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
from optimizer.fitting.options import Stated
from optimizer.fitting.record import RunRecord, TokenStats
from optimizer.fitting.replay import MAX_DRAWS, BenchmarkReplay
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements
from optimizer.quantities import counted, quantity
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits

FEW_FAILED = 0.01
"""Share of failed requests up to which failures are ignored."""
IDLE = 0.85
"""Ratio of requests in flight to those of the replay below which fewer users than stated were active."""
LIVES, FEW_LIVES = 6, 2
"""Number of requests per user above which the start and the end of a run have little influence, and below
which they hide how many were in flight.
"""
NEVER_REACHED = 0.5
"""The same ratio for runs of few requests, which never had all their users in flight."""
TAIL_REQUESTS = 4000
"""Number of requests that are replayed to compute how many are in flight on average."""
CHANCE_REQUESTS, CHANCE_DRAWS = 40_000, 50
"""Number of requests, and most replays, to compute how much that varies."""
TAIL_DEVIATIONS = 4.0
"""Standard deviations of the logit over replays up to which fewer in flight are the chance of a late end."""
NEVER_IDLE = 1e-6
"""Share of idle users that stands for none."""
NOT_SENT, CLIENT_DELAY_MS = 0.95, 10.0
"""Criteria for a client that is the bottleneck (R1): it sends less than this share of the offered rate, and
its median delay exceeds this time [ms].
"""
SHARED = (
    "offered_rps", "sent_rps", "throughput_rps", "tokens_rps", "users", "in_flight", "requested", "completed",
    "failed", "incomplete",
)  # fmt: skip
"""Attributes of a record that are divided by the number of equal engines."""


class Replayed(NamedTuple):
    """The run to replay (None if it is excluded), and notes on the decisions about it."""

    run: BenchmarkRun | None
    notes: tuple[Note, ...]


def as_replayed(record: RunRecord, stated: Stated) -> Replayed:
    """Convert a record to the run of one engine, or exclude it; return notes on all decisions.

    Raises:
        FitError: the record does not determine how many engines were measured.
    """
    notes: list[Note] = []

    def say(topic: str, text: str) -> None:
        notes.append(Note(record.source, topic, text))

    result = without_broken_mean(_with_lengths(record, stated, say), say)
    itl_ms: float | None = None
    reason = why_broken(result)
    if reason is None:
        result = cleaned(result, say)
        itl_ms = time_per_token(result, say)
        reason = why_other_load(result, itl_ms)
    if reason is not None:
        say(LEFT_OUT, f"is left out: {reason}")
        return Replayed(None, tuple(notes[-1:]))
    tell_conditions(result, say)
    one = _of_one_engine(result, stated, say)
    busy = in_flight(one, itl_ms)
    run = _run(_loaded(one, busy, say), itl_ms, say)
    if one.is_rated or failed_share(one) > FEW_FAILED or busy is None:
        return Replayed(run, tuple(notes))
    active = _as_active(run, busy, one.completed or 0.0, say)
    return Replayed(active, tuple(notes if active else notes[-1:]))


def _with_lengths(record: RunRecord, stated: Stated, say: Say) -> RunRecord:
    """Return the record with the lengths that the user states and the report does not."""
    prompt, output = record.prompt, record.output
    if prompt.mean is None and stated.in_tokens is not None:
        prompt = TokenStats(stated.in_tokens)
    elif stated.in_tokens is not None:
        say(
            "--in-tokens",
            f"its prompts have {quantity(prompt.mean or 0)} tokens, as stated: --in-tokens is not used",
        )
    for flag, lengths, cv in (
        ("--in-tokens-cv", prompt, stated.in_tokens_cv), ("--out-tokens-cv", output, stated.out_tokens_cv),
    ):  # fmt: skip
        if cv is not None and (lengths.deviation is not None or record.drawn):
            say(flag, f"the report states how much its lengths differ: {flag} is not used")
    return replace(
        record,
        prompt=prompt.with_cv(stated.in_tokens_cv),
        output=output.with_cv(stated.out_tokens_cv),
    )


def _of_one_engine(record: RunRecord, stated: Stated, say: Say) -> RunRecord:
    """Return the record of one engine: rates and counts divided by the number of engines.

    Raises:
        FitError: the record has a text that might state a number of engines, or its engines are not equal.
    """
    known, counted_by_report = stated.replicas, record.replicas
    if known is None and record.split is not None:
        raise FitError(
            f"{record.file}: prefill and decode ran on separate engines ({record.split}), so they give no "
            "profile of one engine; --replicas N fits them as N equal engines"
        )
    count = int(re.findall(r"\d+", record.hint or "0")[0])
    if count and known is None and stated.cards is None and not counted_by_report and record.cards != count:
        raise FitError(
            f"{record.file} names {record.hint}: give --replicas {count} for {count} engines of one card, or "
            f"--cards {count} for one engine of {count} cards"
        )
    several = float(known or max(counted_by_report or 1.0, 1.0))
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


def _loaded(record: RunRecord, busy: float | None, say: Say) -> RunRecord:
    """Return the record with the load that the engine really saw (A5, R1)."""
    failed = failed_share(record) > FEW_FAILED
    if record.is_rated:
        return _as_sent(record, busy, say, kept=1 - failed_share(record) if failed else 1.0)
    if not failed:
        return record
    users = record.users or 1.0
    if busy is None or (busy < IDLE * users and (record.completed or 0.0) < LIVES * users):
        say("failed", f"{failures(record)}; the others are fitted as if all users had been in flight")
        return record
    say("failed", f"{failures(record)}; in flight is taken from rate times latency, {quantity(busy, 3)}")
    return replace(record, users=max(busy, 1.0))


def _as_active(run: BenchmarkRun, busy: float, completed: float, say: Say) -> BenchmarkRun | None:
    """Return the run with the users that were active, if fewer than stated; None if unknown (L1, L2).

    Because the last users end late, fewer requests than users are in flight on average. So `busy` is compared
    with the replay of the run with equal times per token.
    """
    itl_ms, users, rate = run.measured.itl_ms, run.max_in_flight or 1, run.measured.throughput_rps
    if itl_ms is None or not rate:
        return run
    expected = users * _busy_shares(run, users).mean()
    share, known = busy / expected, completed >= FEW_LIVES * users
    kept = (
        f"{quantity(busy, 3)} were in flight, of {quantity(expected, 3)} that {counted(users, 'user')} keep"
    )
    if busy > CROWDED * users and known:
        say(
            "crowded",
            f"rate times latency is {quantity(busy, 3)} in flight, more than the {counted(users, 'user')}: "
            "its rate or its latency counts other requests",
        )
    if share >= (IDLE if known else NEVER_REACHED) or busy >= users * _least_busy_share(run, users):
        return run
    if not known:
        say(
            LEFT_OUT, f"is left out: {kept} with {quantity(completed)} requests; give each user more requests"
        )
        return None
    active = users * share
    for _ in range(2):
        active *= busy / (math.ceil(active) * _busy_shares(run, active).mean())
    say("idle", f"{kept}: replayed with {quantity(active, 3)} users")
    return _with_users(run, active)


def _least_busy_share(run: BenchmarkRun, users: int) -> float:
    """Return the least share of users in flight that late outputs explain; its logit is about normal."""
    from scipy.special import expit, logit

    shares = _busy_shares(run, users, CHANCE_REQUESTS, CHANCE_DRAWS)
    logits = logit(np.clip(shares, NEVER_IDLE, 1 - NEVER_IDLE))
    return float(expit(logits.mean() - TAIL_DEVIATIONS * logits.std(ddof=min(1, len(logits) - 1))))


def _busy_shares(
    run: BenchmarkRun, users: float, requests: int = TAIL_REQUESTS, most_draws: int = MAX_DRAWS
) -> FloatArray:
    """Return the share of users in flight in each of some replays if all tokens take the same time."""
    itl_ms, ttft_ms = run.measured.itl_ms or 0.0, run.measured.ttft_ms or 0.0
    times = IterationCoefficients(itl_ms, client_offset_ms=max(ttft_ms - itl_ms, 0.0))
    active = _with_users(run, users)
    replay = BenchmarkReplay.of(active, Limits(UNLIMITED, UNLIMITED), requests, most_draws)
    each = [replace(replay, draws=(draw,)).simulate(times, detailed=True) for draw in replay.draws]
    return np.array([load.in_flight for load in each]) / (active.max_in_flight or 1)


def _with_users(run: BenchmarkRun, users: float) -> BenchmarkRun:
    """Return the run with a number of users; the remainder to the next integer is think time (L2)."""
    pause = math.ceil(users) - users
    return replace(
        run, max_in_flight=math.ceil(users), think_ms=1000 * pause / (run.measured.throughput_rps or math.inf)
    )


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
    if prompts.assumed or answers.assumed:
        say(
            "lengths",
            "how much lengths differ is not stated: they are assumed to differ (CV "
            f"{prompts.cv:g} of prompts, {answers.cv:g} of answers); state --in-tokens-cv, --out-tokens-cv",
        )
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
