"""Counts of a server in a time window, from samples of its replicas, and how much of the window they cover.

A counter states the sum up to its sample. So the count between two samples is exact, and a window can begin
between two samples. But samples around a hole say nothing about the time in the hole: a window counts only if
samples that are close to each other cover it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum
from statistics import median
from typing import Any

from optimizer.stabilisation.arrivals import ArrivalCount
from rest_server.loop.window import Counts, Hold, HoldReason, Window, summed

FULL = 0.9
"""Minimum fraction of the time window that samples must cover."""
GAP_INTERVALS = 2.5
"""Time between two samples that always cover the time between them [sampling intervals]; one is missing."""
MAX_GAP_INTERVALS = 3.5
"""Maximum time between two samples that cover the time between them [sampling intervals], if it is short."""
SHORT_GAP = 0.3
"""Maximum fraction of the window for which a time between two samples counts as short."""
MIN_STALE_INTERVALS = 2.0
"""Minimum age of a stale value [sampling intervals]."""


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """Metrics of a replica at one time; counters are since its start."""

    counters: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]]
    """Number of values in each histogram bucket, by field of `Counts` and upper bound."""
    gauges: Mapping[str, float]
    started_s: float | None = None
    """Time at which the replica started [s since the epoch]; None if unknown."""


EMPTY = ReplicaSample({}, {}, {"waiting": 0.0, "running": 0.0})
"""Metrics of a replica that has just started."""
Samples = Sequence[tuple[float, ReplicaSample]]
"""Samples of a replica in order of their times [s since the epoch]."""


def counts_between(before: ReplicaSample, after: ReplicaSample) -> Counts:
    """Return the counts of a replica between two samples.

    If a counter has decreased, the replica has been restarted: it counts from zero, and the requests that
    were waiting in it are lost.
    """
    old = EMPTY if _has_restarted(before, after) else before
    counts: dict[str, Any] = {
        name: value - old.counters.get(name, 0.0) for name, value in after.counters.items()
    }
    for name, buckets in after.buckets.items():
        then = old.buckets.get(name, {})
        counts[name] = {bound: value - then.get(bound, 0.0) for bound, value in buckets.items()}
    counts["waiting_growth"] = after.gauges.get("waiting", 0.0) - old.gauges.get("waiting", 0.0)
    return Counts(**counts)


def _has_restarted(before: ReplicaSample, after: ReplicaSample) -> bool:
    return any(after.counters.get(name, value) < value for name, value in before.counters.items())


@dataclass(frozen=True, slots=True)
class SampledWindow:
    """Counts of a server in a time window, and the time that its samples cover."""

    counts: Counts
    interval_s: float
    """Median time between two samples of a replica [s]; 0 without two samples."""
    served_s: float
    """Time in the window that samples of any replica cover [s]."""
    covered_s: float
    """Time in the window that samples cover, summed over the replicas [s]."""
    existing_s: float
    """Time in the window in which replicas are known to exist, summed over the replicas [s]."""
    here: tuple[ReplicaSample, ...]
    """Last samples of the replicas that report."""
    has_new: bool = False
    """Whether a replica appeared in the window, whose requests before its first sample are not counted."""
    last: ArrivalCount | None = None
    """Arrivals in the last period; None without two samples."""

    def problem(self, window_s: float, stale_s: float | None = None) -> Hold | None:
        """Return the reason why the window does not count; None if it does.

        Args:
            window_s: length of the window [s].
            stale_s: configured age of a stale value [s]; None if there is none.
        """
        if stale_s is not None and stale_s < MIN_STALE_INTERVALS * self.interval_s * FULL:
            text = f"staleAfter {stale_s:g} s is below two scrape intervals of {self.interval_s:.3g} s"
            return Hold(HoldReason.stale, f"{text}; lengthen it")
        share = self.covered_s / self.existing_s if self.existing_s else 0.0
        if min(share, self.served_s / window_s) < FULL:
            full_s = min(share * window_s, self.served_s)
            text = f"samples cover {full_s:.0f} s of {window_s:g} s"
            return Hold(HoldReason.window_not_full, text)
        return None

    def reading(self, *, expected: int | None = None) -> Window:
        """Return the window as measurements of a server.

        Args:
            expected: number of replicas that should report; None if unknown.
        """
        waiting = tuple(sample.gauges.get("waiting", 0.0) for sample in self.here)
        running = fsum(sample.gauges.get("running", 0.0) for sample in self.here)
        there = len(self.here), expected, self.covered_s
        return Window(self.counts, fsum(waiting), running, *there, self.last, waiting, self.has_new)


def sampled_window(
    replicas: Mapping[str, Samples],
    now_s: float,
    window_s: float,
    *,
    stale_s: float | None = None,
    listed: Iterable[str] | None = None,
    period_s: float = 0.0,
) -> SampledWindow:
    """Return the counts of a server in the window up to a time, and in the last period.

    The window and the period of a replica that reports end at its last sample, so that nothing is
    extrapolated. If samples are missing, counts are spread evenly over the time between two samples.

    Args:
        replicas: samples of the replicas, from before the window on.
        now_s: the time [s since the epoch].
        window_s: length of the window [s].
        stale_s: maximum time between two samples that cover the time between them [s]; None if only the
            sampling interval limits it.
        listed: replicas that are known to exist now; None if unknown, so that those that report do.
        period_s: length of the last period [s]; at least a sampling interval counts.
    """
    gaps = [after - before for windows in replicas.values() for (before, _), (after, _) in pairwise(windows)]
    interval_s = median(gaps) if gaps else 0.0
    longest_s = max(GAP_INTERVALS * interval_s, min(MAX_GAP_INTERVALS * interval_s, SHORT_GAP * window_s))
    gap_s = min(longest_s, stale_s or float("inf"))
    begin_s, there = now_s - window_s, set(listed or ())
    parts, covered, existing, here, gone = [], [], [], list[Samples](), list[Samples]()
    first_s, last_s, has_new = now_s, begin_s, False
    for name, windows in replicas.items():
        samples = list(windows)
        if not samples or samples[-1][0] <= begin_s:
            continue
        end_s = samples[-1][0]
        reports = now_s - end_s <= gap_s
        parts.append(_counts_after(samples, end_s - window_s if reports else begin_s))
        has_new |= samples[0][0] > begin_s and samples[0][1] is not EMPTY
        first_s, last_s = min(first_s, samples[0][0]), max(last_s, end_s)
        spans = [(a, b) for (a, _), (b, _) in pairwise(samples) if b - a <= gap_s]
        known_s = end_s
        if reports and (listed is None or name in there):
            here.append(samples)
            if samples[0][0] <= begin_s:  # the counts of others end at the last sample
                spans.append((end_s, now_s))
        else:
            gone.append(samples)
        if name in there or (listed is None and reports):
            known_s = now_s
        covered += [(max(a, begin_s), b) for a, b in spans if b > begin_s]
        existing.append((max(samples[0][0], begin_s), known_s))
    counts = replace(summed(parts), span_s=max(0.0, min(window_s, last_s - first_s)))
    gaps = [b - a for samples in here for (a, _), (b, _) in pairwise(samples) if b > begin_s]
    has_hole = max(gaps, default=0.0) > gap_s
    last = _last_count(here, gone, last_s, interval_s, max(period_s, interval_s), has_hole=has_hole)
    covers = _union_s(covered), _sum_s(covered), _sum_s(existing)
    return SampledWindow(
        counts, interval_s, *covers, tuple(samples[-1][1] for samples in here), has_new, last
    )


def _last_count(
    here: Sequence[Samples],
    gone: Sequence[Samples],
    last_s: float,
    interval_s: float,
    span_s: float,
    *,
    has_hole: bool,
) -> ArrivalCount | None:
    """Return the arrivals of a server in the last period; None if too few replicas have a new sample.

    A few replicas without a new sample count as the mean of the others.

    Args:
        here: samples of the replicas that report.
        gone: samples of other replicas, which may have been there in the period.
        last_s: time of the last sample [s since the epoch].
        interval_s: sampling interval [s].
        span_s: length of the period [s].
        has_hole: whether samples are missing in the window.
    """
    new = [samples for samples in here if last_s - samples[-1][0] <= interval_s]
    if not new or not span_s or len(new) < FULL * len(here):
        return None
    share, begin_s = len(here) / len(new), last_s - span_s
    parts = [_counts_after(samples, samples[-1][0] - span_s).times(share) for samples in new]
    parts += [_counts_after(samples, begin_s) for samples in gone if samples[-1][0] > begin_s]
    return ArrivalCount(last_s, span_s, summed(parts).arrivals, has_hole)


def _counts_after(samples: Samples, begin_s: float) -> Counts:
    """Return the counts from a time to the last sample; the interval of the time is divided in proportion."""
    inside = [i for i, (at_s, _) in enumerate(samples) if at_s > begin_s]
    first = inside[0]
    parts = list(_without_restarts(samples[first:]))
    if first:
        (before_s, before), (after_s, after) = samples[first - 1], samples[first]
        share = (after_s - begin_s) / (after_s - before_s)
        parts.append(counts_between(before, after).times(share))
    return summed(parts)


def _without_restarts(samples: Samples) -> Iterator[Counts]:
    """Yield the counts of each part of the samples without a restart, and of each restart."""
    start = samples[0][1]
    for (_, before), (_, after) in pairwise(samples):
        if _has_restarted(before, after):
            yield counts_between(start, before)
            yield counts_between(before, after)
            start = after
    yield counts_between(start, samples[-1][1])


def _sum_s(spans: Iterable[tuple[float, float]]) -> float:
    return fsum(end_s - begin_s for begin_s, end_s in spans)


def _union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time that is in any of the spans [s]."""
    total_s, reached_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        total_s += max(0.0, end_s - max(begin_s, reached_s))
        reached_s = max(reached_s, end_s)
    return total_s
