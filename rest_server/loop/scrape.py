"""Source of measurements that reads `/metrics` of the replicas, without Prometheus.

It finds replicas in the format of Prometheus' HTTP service discovery, and keeps the counts between two reads
of each replica. So restarted counters and lost queues are attributed to the right replica.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from optimizer.arrays import totals
from optimizer.spec.system import System
from rest_server.loop.fetching import SourceError
from rest_server.loop.metric_names import COUNTERS, GAUGES, HISTOGRAMS, STARTED, chosen
from rest_server.loop.samples import EMPTY, ReplicaSample, sampled_window
from rest_server.loop.window import Hold, HoldReason, Reading, in_buckets

AT_ONCE = 16
"""Number of replicas that are read simultaneously."""
REMEMBERED_S = 3600.0
"""Time for which the last sample of a replica that is no longer listed is kept [s], so that its counters do
not count from zero if it is listed again.
"""


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
    counters, gauges = chosen(COUNTERS, sums), chosen(GAUGES, sums)
    for name, found in (("first_tokens", counters), ("waiting", gauges)):
        if name not in found:
            known = " or ".join(parts[0] for parts in {**COUNTERS, **GAUGES}[name])
            raise SourceError(f"no metric {known}")
    buckets = {
        name: in_buckets(cumulative[metric])
        for name, alternatives in HISTOGRAMS.items()
        if (metric := alternatives[0][0]) in cumulative
    }
    return ReplicaSample(counters, buckets, {"running": 0.0, **gauges}, sums.get(STARTED))


@dataclass(slots=True)
class _ServerHistory:
    """Samples of the replicas of one server over time."""

    samples: dict[str, deque[tuple[float, ReplicaSample]]] = field(default_factory=dict)

    def add(self, now_s: float, last_s: float | None, replica_samples: Mapping[str, ReplicaSample]) -> None:
        """Add a read of all replicas.

        A replica that was never seen before counts from zero, unless it started before the last read.

        Args:
            now_s: time of the read [s since the epoch].
            last_s: time of the last read; None for the first read.
            replica_samples: samples of the replicas by address.
        """
        for address, sample in replica_samples.items():
            mine = self.samples.setdefault(address, deque())
            is_new = sample.started_s is None or last_s is None or sample.started_s >= last_s
            if not mine and last_s is not None and is_new:
                mine.append((last_s, EMPTY))
            if not mine or mine[-1][0] < now_s:
                mine.append((now_s, sample))

    def forget(self, begin_s: float, now_s: float) -> None:
        """Forget samples before a time, except the last one, and replicas that were not seen for an hour."""
        for mine in self.samples.values():
            while len(mine) > 2 and mine[1][0] <= begin_s:
                mine.popleft()
        self.samples = {
            name: mine for name, mine in self.samples.items() if now_s - mine[-1][0] < REMEMBERED_S
        }


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
        self.replicas = totals(
            ((target.server, target.accelerator), int(target.address in samples)) for target in targets
        )
        readings: dict[str, Reading] = {}
        for name in names:
            mine = {target.address: read[target.address] for target in targets if target.server == name}
            history = self._histories.setdefault(name, _ServerHistory())
            here = {address: samples[address] for address in mine if address in samples}
            history.add(now_s, self._seen_s, here)
            history.forget(now_s - 2 * self._window_s, now_s)
            readings[name] = self._reading(history, mine, now_s)
        self._seen_s = now_s
        return readings

    def _reading(
        self, history: _ServerHistory, mine: Mapping[str, ReplicaSample | str], now_s: float
    ) -> Reading:
        if not mine:
            return Hold(HoldReason.no_series, "no replica is listed")
        errors = [value for value in mine.values() if isinstance(value, str)]
        if len(errors) == len(mine):
            return Hold(HoldReason.stale, f"no replica answers: {errors[0]}")
        window = sampled_window(history.samples, now_s, self._window_s, listed=mine)
        return window.problem(self._window_s) or window.reading(expected=len(mine))

    def _sample(self, target: ScrapeTarget) -> ReplicaSample | str:
        """Return the sample of a replica, or the error if there is none."""
        try:
            return sample_of(self._fetch(target.url))
        except SourceError as error:
            return str(error)
