"""Checks the consistency of the metrics that a benchmark tool reports, and corrects or excludes runs.

Metrics of a run satisfy identities, named A1 to T1 in docs/math.md. "E" is the time per token from latencies:
(mean latency − mean TTFT) / (mean output − 1), eq. 240. The bounds were found from valid reports of five
tools.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from optimizer.fitting.notes import Say
from optimizer.fitting.record import RunRecord
from optimizer.quantities import counted, quantity

CHUNKS = 1.3
"""Ratio of ITL to time per token above which a streamed chunk has several tokens; valid files reach 1.08."""
TOO_SHORT = 0.7
"""Ratio of ITL to time per token below which tokens were counted twice; valid files have at least 0.78."""
SAME = 0.05
"""Maximum relative deviation of the ITL from the time per token, which replaces the ITL beyond it."""
LATE_MEDIAN = 1.5
"""Ratio of median to mean TTFT above which clocks are wrong; valid files reach 1.1."""
CROWDED = 1.05
"""Ratio of requests in flight to users above which a rate or a latency must include other requests."""
MANY_FAILED = 0.10
"""Share of failed requests above which the engine's load differs too much from the stated one."""
MIN_CANCELLED = 30
"""Minimum number of requests that a cancelled run must have completed to be used."""
IDLE = 0.75
"""Ratio of requests in flight to users below which failed requests reduced the load."""
OTHER_COUNT = 0.1
"""Relative difference of two counts of output tokens above which only one of them can be right."""
LONG_WINDOW = 0.85
"""Share of a window that requests of users without pauses fill, below which it is longer than the run."""
SAME_COUNT = 0.02
"""Maximum relative difference between rate × duration and the number of completed requests."""
EQUAL_CV = 0.1
"""Coefficient of variation of lengths below which a median can replace the mean."""
WARM_PROMPTS = 0.05
"""Share of prompt tokens from the prefix cache above which β is not the one of uncached prompts."""
MAX_MS, MAX_TOKENS = 1e9, 1e9
LEAST_TOKEN_MS = 0.1
"""Time per token below that of any engine [ms]."""
EARLY = 0.1
"""Ratio of TTFT to time per token below which a unit must be wrong: a first token takes an iteration, too."""
OUTLAST = 2.0
"""Ratio of the mean time of a request to the duration of its run above which a unit must be wrong."""
UNCOUNTED = 0.4
"""Ratio of ITL to time per token below which tokens are missing from the count; if counted twice, it is 0.5.
"""
TIMES = {
    "ttft_ms": "mean TTFT", "ttft_median_ms": "median TTFT", "itl_ms": "mean ITL", "tpot_ms": "mean TPOT",
    "tpot_median_ms": "median TPOT", "latency_ms": "mean latency",
}  # fmt: skip


# --- excluded runs ----------------------------------------------------------------------------------------


def why_broken(record: RunRecord) -> str | None:
    """Return the reason why a run contains no information about the engine; None if it does."""
    checks = (_no_requests, _no_tokens, _no_times, _other_unit, _broken_clocks)
    return record.unusable or next(chain.from_iterable(check(record) for check in checks), None)


def _no_requests(record: RunRecord) -> Iterator[str]:
    if record.completed == 0:
        yield f"nothing was completed{f', {failures(record)}' if record.lost else ''}"
    if record.duration_s is not None and not 0 < record.duration_s < math.inf:
        yield f"its duration is {quantity(record.duration_s)} s"
    if record.offered_rps is None and record.users is None:
        yield "neither a request rate nor a concurrency is stated"
    if record.offered_rps is not None and not record.offered_rps > 0:
        yield f"its offered rate is {quantity(record.offered_rps)} requests/s"


def _no_tokens(record: RunRecord) -> Iterator[str]:
    for lengths, label in ((record.prompt, "prompt"), (record.output, "output")):
        if lengths.mean is None:
            yield f"its {label} tokens are not stated{'; give --in-tokens' if label == 'prompt' else ''}"
        elif not 0 < lengths.mean <= MAX_TOKENS:
            yield f"its mean {label} has {counted(lengths.mean, 'token')}"


def _no_times(record: RunRecord) -> Iterator[str]:
    for name, label in TIMES.items():
        value = getattr(record, name)
        if not _is_possible(value):
            yield f"its {label} is {quantity(value)} ms"


def _other_unit(record: RunRecord) -> Iterator[str]:
    """Yield the reasons why a run's times must have a wrong unit: too short or too long (L1)."""
    each = [value for value in (record.itl_ms, record.tpot_ms, record.tpot_median_ms) if value]
    if each and max(each) < LEAST_TOKEN_MS:
        yield f"no engine reaches its {ms(max(each))} a token: its times are probably in s instead of ms"
    first = record.ttft_median_ms or record.ttft_ms
    if each and first and first < EARLY * min(each):
        yield f"its TTFT, {ms(first)}, is far below its {ms(min(each))} a token: its unit is another one"
    rate, done = record.throughput_rps, record.completed
    whole_s = record.duration_s or (done / rate if done and rate else math.inf)
    lifetime = _lifetime_ms(record, max(each, default=None))
    if lifetime is not None and lifetime > OUTLAST * 1000 * whole_s:
        yield f"its requests last {ms(lifetime)} in a run of {quantity(whole_s)} s: the unit is another one"


def _broken_clocks(record: RunRecord) -> Iterator[str]:
    """Yield the contradictions between the times of a run (T1)."""
    mean, median, latency = record.ttft_ms, record.ttft_median_ms, record.latency_ms
    if mean and latency and mean >= latency and (record.output.mean or 0.0) > 1:
        yield (
            f"its mean TTFT, {ms(mean)}, is not below its mean latency, {ms(latency)}: answers were not "
            "streamed, or tokens of the reasoning were not counted"
        )
    if mean and median and median > LATE_MEDIAN * mean:
        yield f"its median TTFT, {ms(median)}, is far above its mean, {ms(mean)}: its times are wrong"


def why_other_load(record: RunRecord, itl_ms: float | None) -> str | None:
    """Return the reason why successful requests did not see the stated load (A5); None if they did."""
    done = record.completed
    if record.cancelled and done is not None and done < MIN_CANCELLED:
        return f"the run was cancelled after {counted(done, 'request')}"
    if not done or failed_share(record) <= MANY_FAILED:
        return None
    users, busy = record.users, in_flight(record, itl_ms)
    if users is None or busy is None or record.is_rated:
        return failures(record)
    if busy >= IDLE * users:
        return None
    return f"{failures(record)}, so that {quantity(busy, 3)} of {counted(users, 'user')} were in flight"


def failed_share(record: RunRecord) -> float:
    """Return the fraction of a run's requests that failed."""
    return record.lost / max(record.sent, 1.0)


def failures(record: RunRecord) -> str:
    """Describe the number of failed requests: ``12 of 100 requests failed``."""
    stopped = ", and the run was cancelled" if record.cancelled else ""
    return f"{quantity(record.lost)} of {counted(record.sent, 'request')} failed{stopped}"


# --- metrics ----------------------------------------------------------------------------------------------


def without_broken_mean(record: RunRecord, say: Say) -> RunRecord:
    """Return the record without its mean TTFT if that is impossible and other metrics replace it."""
    needed = not (record.exact_itl and record.itl_ms and record.ttft_median_ms)
    if _is_possible(record.ttft_ms) or needed:
        return record
    say("mean", f"its mean TTFT is {ms(record.ttft_ms or 0.0)}: its median and the tool's own ITL are used")
    return replace(record, ttft_ms=None)


def cleaned(record: RunRecord, say: Say) -> RunRecord:
    """Return the record without zero times, with its window cut at the last request, and with a rate (A4)."""
    changes: dict[str, Any] = {name: getattr(record, name) or None for name in TIMES}
    changes["users"] = record.users if record.users and 0 < record.users < math.inf else None
    record = _counted_tokens(replace(record, **changes), say)
    duration, late = record.duration_s, -(record.cooldown_s or 0.0)
    if duration and SAME_COUNT * duration < late < duration:
        duration -= late
        say("window", f"its window ends {quantity(late, 3)} s after the run: {quantity(duration)} s count")
    rate, done = record.throughput_rps, record.completed
    if duration and done and done > 0:
        rate, duration = _consistent(replace(record, duration_s=duration), say)
        _tell_tokens(record, rate, say)
    return replace(record, duration_s=duration, throughput_rps=rate)


def _consistent(record: RunRecord, say: Say) -> tuple[float, float]:
    """Return rate [requests/s] and duration [s] of a run, corrected from its other metrics (A4)."""
    duration, done = record.duration_s or 0.0, record.completed or 0.0
    rate = record.throughput_rps if 0 < (record.throughput_rps or 0.0) < math.inf else None
    completed_rps, lifetime = done / duration, _lifetime_ms(record, record.tpot_ms or record.itl_ms)
    most = record.users * 1000 / lifetime if record.users and lifetime and not record.is_rated else None
    others = [
        record.tokens_rps / record.output.mean if record.tokens_rps and record.output.mean else None,
        most,
    ]
    if rate is None or abs(rate / completed_rps - 1) <= SAME_COUNT:
        if (
            record.is_busy
            and most
            and completed_rps < LONG_WINDOW * most
            and done >= 2 * (record.users or 1.0)
        ):
            say(
                "window",
                f"{quantity(done)} requests of {ms(lifetime or 0.0)} fill {quantity(done / most, 3)} s of "
                f"its window of {quantity(duration)} s, without pauses: {quantity(most)} requests/s are used",
            )
            return most, done / most
        return rate or completed_rps, duration
    note = f"{quantity(rate)} requests/s times {quantity(duration)} s is not the {quantity(done)} completed: "
    judge = next((other for other in others if other), completed_rps)
    is_nearer = abs(math.log(rate / judge)) < abs(math.log(completed_rps / judge))
    if most and (rate <= CROWDED * most) != (completed_rps <= CROWDED * most):
        is_nearer = rate <= CROWDED * most  # the other one needs more users than there are
    if is_nearer:
        say(
            "rate", f"{note}{quantity(done / rate)} s are used, because the other figures agree with the rate"
        )
        return rate, done / rate
    say("rate", f"{note}{quantity(completed_rps)} requests/s are used")
    return completed_rps, duration


def _counted_tokens(record: RunRecord, say: Say) -> RunRecord:
    """Return the record with another count of output tokens if the times contradict that of the server (A2).

    The other count is that of the client, or that of the tokens per second. TPOT × (tokens − 1), or the
    number of gaps between tokens, is the time from the first to the last token.
    """
    server, text = record.output.mean, record.text_tokens or _tokens_by_rate(record)
    if not server or not text or not 0 < text < MAX_TOKENS or abs(text / server - 1) <= OTHER_COUNT:
        return record
    whole = record.latency_ms or _lifetime_by_users(record)
    known = whole and record.ttft_ms
    span = (whole or 0.0) - (record.ttft_ms or 0.0) if known else (record.tpot_ms or 0.0) * (server - 1)
    each = [
        record.itl_ms and record.itl_ms / (record.accepted_tokens or 1.0),
        record.tpot_ms if known else None,
    ]
    implied = [span / one + 1 for one in each if one]
    contradicts = any(
        abs(math.log(count / text)) < abs(math.log(count / server)) for count in implied if count > 0
    )
    if not record.text_tokens:
        if not contradicts:
            return record
        say(
            "tokens",
            f"{quantity(record.tokens_rps or 0.0)} output tokens/s are {quantity(text)} a request, which its "
            f"times confirm, and {quantity(server)} are stated: the former are used",
        )
        return replace(record, output=record.output._replace(mean=text))
    if contradicts:
        return replace(record, asked_tokens=server, output=record.output._replace(mean=text))
    say(
        "counts",
        f"the server counts {quantity(server)} output tokens a request, and the client {quantity(text)}: "
        "the former are used",
    )
    return record


def _tokens_by_rate(record: RunRecord) -> float | None:
    """Return the output tokens of a request by tokens per second (A4); None if a metric is missing."""
    counted_rps = record.completed / record.duration_s if record.completed and record.duration_s else None
    rate = record.throughput_rps or counted_rps
    return record.tokens_rps / rate if record.tokens_rps and rate and counted_rps else None


def _lifetime_by_users(record: RunRecord) -> float | None:
    """Return the time of a request if all users of a closed loop are in flight (L1) [ms]; None if unknown."""
    known = record.completed and record.duration_s
    rate = (record.completed or 0.0) / (record.duration_s or 1.0) if known else record.throughput_rps
    return 1000 * record.users / rate if record.users and rate and not record.is_rated else None


def _tell_tokens(record: RunRecord, rate: float, say: Say) -> None:
    """Report (with `say`) output tokens per second that do not match the successful requests (A4)."""
    each, mean = (record.tokens_rps or 0.0) / rate, record.output.mean or 0.0
    if each and record.asked_tokens is None and abs(each / mean - 1) > SAME_COUNT:
        say(
            "tokens",
            f"{quantity(record.tokens_rps or 0.0)} output tokens/s are {quantity(each)} a request, and "
            f"{quantity(mean)} are stated: the latter are used",
        )


def time_per_token(record: RunRecord, say: Say) -> float | None:
    """Return the mean time per token after the first [ms]: E if latencies are known (A1, A3, eq. 240)."""
    whole, first, gaps = record.latency_ms, record.ttft_ms, (record.output.mean or 0.0) - 1
    itl, tpot = record.itl_ms, record.tpot_ms
    if whole and first and gaps > 0:
        exact = (whole - first) / gaps
        if itl:
            _tell_itl(record, itl, exact, "request latencies", say)
        return itl if itl and record.exact_itl and abs(itl / exact - 1) <= SAME else exact
    if itl and tpot and (itl > CHUNKS * tpot or _is_crowded(record, itl, tpot)):
        _tell_itl(record, itl, tpot, "TPOT", say)
        itl = None
    time, most = itl or tpot, _most_per_token(record, gaps)
    if time and most and time > (1 + SAME_COUNT) * most and (not tpot or time <= CHUNKS * most):
        _tell_itl(record, time, most, "rate, users and TTFT", say)
        return most
    if time:
        return time
    if record.tpot_median_ms and (record.output.cv or 0.0) < EQUAL_CV:
        say("medians", "there are medians only: the median TPOT stands for the mean ITL")
        return record.tpot_median_ms
    if gaps > 0:
        median = ", but a median over several lengths" if record.tpot_median_ms else ""
        say("no ITL", f"no time per token is stated{median}")
    return None


def _is_crowded(record: RunRecord, itl: float, tpot: float) -> bool:
    """Return whether the ITL, but not the TPOT, means more requests in flight than there are users."""
    users = math.inf if record.is_rated else record.users or math.inf
    by_itl, by_tpot = (in_flight(replace(record, latency_ms=None), each) or 0.0 for each in (itl, tpot))
    return by_tpot <= users < by_itl


def _most_per_token(record: RunRecord, gaps: float) -> float | None:
    """Return the time per token [ms] if all users of a closed loop are in flight (L1); None if unknown."""
    whole, first = _lifetime_by_users(record), record.ttft_ms or record.ttft_median_ms
    return max((whole - first) / gaps, 0.0) if whole and first and gaps > 0 else None


def _tell_itl(record: RunRecord, itl: float, used: float, source: str, say: Say) -> None:
    ratio = itl / used
    counted_as = "not all counted" if ratio < UNCOUNTED else "counted twice"
    if source != "request latencies" and ratio <= CHUNKS:
        say(
            "many",
            f"with {ms(itl)} a token, more than its users would be in flight: {ms(used)} from {source} are "
            "used",
        )
    elif ratio > CHUNKS:
        speculative = (record.accepted_tokens or 0.0) > 1
        why = f"speculative decoding{'' if speculative else ', or a stream in lumps'}"
        ask = "; to decide it, record request latencies (--percentile-metrics ttft,tpot,itl,e2el)"
        say(
            "chunks",
            f"{quantity(ratio, 2)} tokens arrive per chunk ({why}); ITL is taken from {source}, {ms(used)}, "
            f"not from the gaps between chunks, {ms(itl)}"
            f"{ask if source == 'TPOT' and not speculative else ''}",
        )
    elif ratio < TOO_SHORT:
        say(
            "halves",
            f"the report's ITL, {ms(itl)}, is {ratio:.2f} of what request latency and TTFT say, {ms(used)}; "
            f"tokens were probably {counted_as}. The latter is used",
        )


def in_flight(record: RunRecord, itl_ms: float | None) -> float | None:
    """Return the mean number of requests in flight by Little's law (L1); None if a metric is missing."""
    lifetime, rate = _lifetime_ms(record, itl_ms), record.throughput_rps
    return None if lifetime is None or rate is None else rate * lifetime / 1000


def _lifetime_ms(record: RunRecord, itl_ms: float | None) -> float | None:
    """Return the mean time from sending to the last token [ms]; None if a metric is missing."""
    first = record.ttft_ms or record.ttft_median_ms
    if record.latency_ms or not (itl_ms and first):
        return record.latency_ms
    return first + max((record.output.mean or 0.0) - 1, 0.0) * itl_ms


def tell_conditions(record: RunRecord, say: Say) -> None:
    """Report (with `say`) conditions that make the times depend on the workload, not only on the engine."""
    if record.asked_tokens is not None:
        asked, came = quantity(record.asked_tokens), quantity(record.output.mean or 0.0)
        say("asked", f"the report counts {asked} tokens a request as asked for; {came} came")
    if (record.accepted_tokens or 0.0) > 1 + SAME:
        say(
            "speculative",
            f"speculative decoding, {quantity(record.accepted_tokens or 0.0, 3)} tokens a step: token times "
            "hold for texts that are accepted as often",
        )
    if (record.cached_share or 0.0) > WARM_PROMPTS:
        share = f"{record.cached_share:.0%} of prompt tokens came from the prefix cache"
        say("cache", f"{share}: β is that of this workload")
    elif (record.turns or 0.0) > 1:
        say(
            "turns",
            f"conversations of {quantity(record.turns or 0.0, 3)} turns: prompts repeat earlier ones, and a "
            "prefix cache would make β that of this workload",
        )


def _is_possible(value: float | None) -> bool:
    return value is None or 0 <= value <= MAX_MS


def ms(value: float) -> str:
    """Format a time with three significant digits and its unit."""
    return f"{quantity(value, 3)} ms"
