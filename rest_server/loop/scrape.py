"""Source of measurements that reads `/metrics` of the replicas, without Prometheus.

It finds replicas in the format of Prometheus' HTTP service discovery, and keeps the counts between two reads
of each replica. So restarted counters and lost queues are attributed to the right replica.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from optimizer.arrays import totals
from optimizer.spec.system import System
from rest_server.loop.fetching import SourceError
from rest_server.loop.metric_names import COUNTERS, GAUGES, HISTOGRAMS, Alternatives
from rest_server.loop.window import Counts, Hold, HoldReason, Reading, Window, in_buckets, summed

AT_ONCE = 16
"""Number of replicas that are read simultaneously."""
FULL = 0.9
"""Minimum fraction of the time window in which requests must have been counted."""


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """Metrics of a replica at one time; counters are since its start."""

    counters: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]]
    """Number of values in each histogram bucket, by field of `Counts` and upper bound."""
    gauges: Mapping[str, float]


EMPTY = ReplicaSample({}, {}, {"waiting": 0.0, "running": 0.0})
"""Metrics of a replica that has just started."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A replica to scrape, with its address and labels."""

    address: str
    server: str
    accelerator: str = ""

    @property
    def url(self) -> str:
        """URL of the replica's metrics."""
        base = self.address if "://" in self.address else f"http://{self.address}"
        return f"{base.rstrip('/')}/metrics"


def discovered(text: str, server_label: str) -> list[ScrapeTarget]:
    """Return the replicas in a response of HTTP service discovery; those without the label are ignored.

    Raises:
        SourceError: the text has another format.
    """
    try:
        groups: list[dict[str, Any]] = json.loads(text)
        return [
            ScrapeTarget(str(address), labels[server_label], labels.get("accelerator", ""))
            for group in groups
            for labels in [group.get("labels", {})]
            if server_label in labels
            for address in group["targets"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"no list of targets in Prometheus's format of HTTP discovery: {error}") from None


def sample_of(text: str) -> ReplicaSample:
    """Return the values in the text of a replica's metrics.

    Raises:
        SourceError: the text is invalid, or a metric of the queue or of first tokens is absent.
    """
    sums: dict[str, float] = {}
    cumulative: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    bounds = cumulative.setdefault(sample.name, {})
                    bound = float(sample.labels["le"])
                    bounds[bound] = bounds.get(bound, 0.0) + sample.value
                else:
                    sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError) as error:
        raise SourceError(f"metrics cannot be read: {error}") from None
    counters, gauges = _chosen(COUNTERS, sums), _chosen(GAUGES, sums)
    for name, found in (("first_tokens", counters), ("waiting", gauges)):
        if name not in found:
            known = " or ".join(parts[0] for parts in {**COUNTERS, **GAUGES}[name])
            raise SourceError(f"no metric {known}")
    buckets = {
        name: in_buckets(cumulative[metric])
        for name, alternatives in HISTOGRAMS.items()
        if (metric := alternatives[0][0]) in cumulative
    }
    return ReplicaSample(counters, buckets, {"running": 0.0, **gauges})


def _chosen(table: Mapping[str, Alternatives], sums: Mapping[str, float]) -> dict[str, float]:
    """Return the value of each quantity, from its first alternative that is present."""
    found = {}
    for name, alternatives in table.items():
        parts = next((parts for parts in alternatives if all(part in sums for part in parts)), None)
        if parts is not None:
            found[name] = sum(sums[part] for part in parts)
    return found


def counts_between(before: ReplicaSample, after: ReplicaSample) -> Counts:
    """Return the counts of a replica between two samples.

    If a counter has decreased, the replica has been restarted: it counts from zero, and the requests that
    were waiting in it are lost.
    """
    restarted = any(after.counters.get(name, value) < value for name, value in before.counters.items())
    old = EMPTY if restarted else before
    found: dict[str, Any] = {
        name: value - old.counters.get(name, 0.0) for name, value in after.counters.items()
    }
    for name, buckets in after.buckets.items():
        then = old.buckets.get(name, {})
        found[name] = {bound: value - then.get(bound, 0.0) for bound, value in buckets.items()}
    found["waiting_growth"] = after.gauges["waiting"] - old.gauges["waiting"]
    return Counts(**found)


@dataclass(slots=True)
class _ServerHistory:
    """Counts of one server over time, and the last samples of its replicas."""

    steps: deque[Counts] = field(default_factory=deque)
    last: dict[str, ReplicaSample] = field(default_factory=dict)

    def add(self, span_s: float | None, samples: Mapping[str, ReplicaSample], listed: Iterable[str]) -> None:
        """Add a read of all replicas.

        Args:
            span_s: time since the last read [s]; None for the first read, with which nothing can be counted.
            samples: samples of the replicas by address.
            listed: addresses of all replicas that service discovery lists.
        """
        if span_s is not None:
            counts = summed(
                counts_between(self.last.get(address, EMPTY), sample) for address, sample in samples.items()
            )
            self.steps.append(replace(counts, span_s=span_s))
        there = set(listed)
        self.last = {
            address: value for address, value in (self.last | dict(samples)).items() if address in there
        }

    def window(self, window_s: float) -> Counts:
        """Return the counts of the last reads, whose total time is closest to the window's length."""
        span_s = math.fsum(step.span_s for step in self.steps)
        while self.steps and span_s - self.steps[0].span_s / 2 >= window_s:
            span_s -= self.steps.popleft().span_s
        return summed(self.steps)


class ScrapeReader:
    """Source of measurements that reads the metrics of all replicas in each cycle."""

    def __init__(
        self,
        fetch: Callable[[str], str],
        discovery: str,
        window_s: float,
        server_label: str = "server",
    ) -> None:
        """Create a source without history.

        Args:
            fetch: function that returns the body at an address, or raises `SourceError`.
            discovery: address of an HTTP service discovery.
            window_s: length of the time window [s].
            server_label: label that contains the name of the server.
        """
        self._fetch = fetch
        self._discovery = discovery
        self._window_s = window_s
        self._label = server_label
        self._histories: dict[str, _ServerHistory] = {}
        self._seen_s: float | None = None
        self.replicas: Mapping[tuple[str, str], int] = {}
        """Number of replicas that responded in the last read, by server and accelerator."""

    def read(self, system: System, now_s: float) -> dict[str, Reading]:
        """Read all replicas, and return the window of each server, or the reason why there is none."""
        names = list(system.servers)
        try:
            targets = discovered(self._fetch(self._discovery), self._label)
        except SourceError as error:
            return dict.fromkeys(names, Hold(HoldReason.source_down, str(error)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            read = dict(
                zip((target.address for target in targets), pool.map(self._sample, targets), strict=True)
            )
        samples = {address: value for address, value in read.items() if isinstance(value, ReplicaSample)}
        span_s = None if self._seen_s is None else now_s - self._seen_s
        self._seen_s = now_s
        self.replicas = totals(
            ((target.server, target.accelerator), int(target.address in samples)) for target in targets
        )
        found: dict[str, Reading] = {}
        for name in names:
            mine = [target.address for target in targets if target.server == name]
            history = self._histories.setdefault(name, _ServerHistory())
            here = {address: samples[address] for address in mine if address in samples}
            history.add(span_s, here, mine)
            counts = history.window(self._window_s)
            if mine and not here:
                found[name] = Hold(HoldReason.stale, f"no replica answers: {read[mine[0]]}")
            else:
                found[name] = self._reading(counts, mine, here)
        return found

    def _reading(self, counts: Counts, mine: Sequence[str], here: Mapping[str, ReplicaSample]) -> Reading:
        if not mine:
            return Hold(HoldReason.no_series, "no replica is listed")
        if counts.span_s < FULL * self._window_s:
            return Hold(
                HoldReason.window_not_full, f"{counts.span_s:.0f} s of {self._window_s:g} s are counted"
            )
        waiting = math.fsum(sample.gauges["waiting"] for sample in here.values())
        running = math.fsum(sample.gauges["running"] for sample in here.values())
        return Window(counts, waiting, running, len(here), len(mine))

    def _sample(self, target: ScrapeTarget) -> ReplicaSample | str:
        """Return the sample of a replica, or the error if there is none."""
        try:
            return sample_of(self._fetch(target.url))
        except SourceError as error:
            return str(error)
