"""Source of measurements that queries Prometheus, for all servers and quantities at once.

Counters and gauges are read as raw samples, because functions such as `increase` do not say how much of the
window the samples cover.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from optimizer.arrays import grouped
from optimizer.spec.system import System
from rest_server.loop.config import PrometheusSource
from rest_server.loop.fetching import Fetcher, SourceError, secret_in
from rest_server.loop.metric_names import (
    COUNTERS,
    GATEWAY_COUNTERS,
    GATEWAY_GAUGES,
    GAUGES,
    HISTOGRAMS,
    Alternatives,
    chosen,
)
from rest_server.loop.samples import ReplicaSample, Samples, sampled_window
from rest_server.loop.window import Hold, HoldReason, Reading, Window, in_buckets

QUANTITY = "quantity"
"""Label of the response that contains the name of the histogram."""
OF_METRICS = {"__name__", "finished_reason", "reason"}
"""Labels that tell the series of one metric of a replica apart."""
Row = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels of a series, and its samples: times [s since the epoch] and values."""


class QueryTexts:
    """Builds the PromQL queries of a source: raw samples of counters and gauges, and growth of histograms."""

    def __init__(self, source: PrometheusSource, window_s: float) -> None:
        self._source = source
        self._window = _duration(window_s)
        self._range = _duration(window_s + source.stale_s)
        """Range of the samples, with those before the window that a window can begin after."""

    def replicas(self) -> str:
        """Return the query for the samples of all replicas."""
        return self._samples((COUNTERS, GAUGES), self._source.server_label, self._source.selector)

    def gateway(self) -> str | None:
        """Return the query for the samples of the gateway; None if there is none."""
        label = self._source.gateway_label
        return None if label is None else self._samples((GATEWAY_COUNTERS, GATEWAY_GAUGES), label, "")

    def histograms(self) -> str:
        """Return the query for the growth of the histograms in the window, by server and bound."""
        return " or ".join(
            f'label_replace({self._growth(alternatives)}, "{QUANTITY}", "{name}", "", "")'
            for name, alternatives in HISTOGRAMS.items()
        )

    def _growth(self, alternatives: Alternatives) -> str:
        labels = f"{self._source.server_label}, le"
        chosen = f"{{{self._source.selector}}}" if self._source.selector else ""
        return " or ".join(
            f"sum by ({labels}) (increase({metric}{chosen}[{self._window}]))" for (metric,) in alternatives
        )

    def _samples(self, tables: Iterable[Mapping[str, Alternatives]], label: str, selector: str) -> str:
        names = {name for table in tables for parts in chain.from_iterable(table.values()) for name in parts}
        matchers = [f'__name__=~"{"|".join(sorted(names))}"', f'{label}!=""']
        return f"{{{','.join([*matchers, selector] if selector else matchers)}}}[{self._range}]"


def _duration(seconds: float) -> str:
    return f"{max(1, round(1000 * seconds))}ms"


class PrometheusReader:
    """Source of measurements that queries Prometheus in each cycle of the loop."""

    def __init__(
        self,
        ask: Callable[[str, Mapping[str, str]], str],
        source: PrometheusSource,
        window_s: float,
        period_s: float = 0.0,
    ) -> None:
        """Prepare the queries.

        Args:
            ask: function that posts a form to an address and returns the body, or raises `SourceError`.
            source: settings of the source.
            window_s: length of the time window [s].
            period_s: time between two reads [s].
        """
        self._ask = ask
        self._source = source
        self._window_s, self._period_s = window_s, period_s
        self._queries = QueryTexts(source, window_s)
        self.replicas: Mapping[tuple[str, str], int] = {}
        """Always empty, because the metrics do not state the accelerator of a replica."""

    def read(self, system: System, now_s: float) -> dict[str, Reading]:
        """Return the window of each server up to a time, or the reason why there is none."""
        names = list(system.servers)
        gateway_query = self._queries.gateway()
        try:
            rows = self._rows(self._queries.replicas(), now_s)
            gateway_rows = [] if gateway_query is None else self._rows(gateway_query, now_s)
            growth = self._rows(self._queries.histograms(), now_s)
        except SourceError as error:
            return dict.fromkeys(names, Hold(HoldReason.source_down, str(error)))
        own = {name: name for name in names}
        replicas = samples_by_server(rows, self._source.server_label, own, COUNTERS, GAUGES)
        owners = own | _only_servers(system)
        gateways = samples_by_server(
            gateway_rows, self._source.gateway_label or "", owners, GATEWAY_COUNTERS, GATEWAY_GAUGES
        )
        buckets = _buckets(growth, self._source.server_label)
        return {
            name: self._reading(replicas.get(name, {}), gateways.get(name, {}), buckets.get(name, {}), now_s)
            for name in names
        }

    def _rows(self, query: str, now_s: float) -> list[Row]:
        """Return the response as labels and samples of each series.

        Raises:
            SourceError: there is no response, or it cannot be read.
        """
        url = f"{self._source.url.rstrip('/')}/api/v1/query"
        try:
            loads = json.loads(self._ask(url, {"query": query, "time": f"{now_s:.3f}"}))
            result: list[dict[str, Any]] = loads["data"]["result"]
            return [
                (
                    dict(item["metric"]),
                    [(float(at), float(value)) for at, value in item.get("values") or [item["value"]]],
                )
                for item in result
            ]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise SourceError(f"{url}: the answer cannot be read: {error!r}") from None

    def _reading(
        self,
        replicas: Mapping[str, Samples],
        gateways: Mapping[str, Samples],
        buckets: Mapping[str, Mapping[float, float]],
        now_s: float,
    ) -> Reading:
        stale_s, counted = self._source.stale_s, self._source.gateway_label is not None
        if counted and not any("arrived" in last.counters for last in _last(gateways)):
            text = f"no metric {GATEWAY_COUNTERS['arrived'][0][0]} for this server"
            return Hold(HoldReason.no_series, text)
        known = any("first_tokens" in last.counters and "waiting" in last.gauges for last in _last(replicas))
        if not counted and not known:
            first, waiting = COUNTERS["first_tokens"][0][0], GAUGES["waiting"][0][0]
            return Hold(HoldReason.no_series, f"no metrics {first} and {waiting}")
        settings: dict[str, Any] = {"stale_s": stale_s, "period_s": self._period_s}
        window = sampled_window(replicas, now_s, self._window_s, **settings)
        if not counted:
            hold = window.problem(self._window_s, stale_s)
            return hold or _with_buckets(window.reading(), buckets)
        # Nobody states how many gateways there are, so a silent one exists until it has left the window.
        arrivals = sampled_window(gateways, now_s, self._window_s, listed=gateways, **settings)
        hold = arrivals.problem(self._window_s, stale_s)
        return hold or _with_buckets(_with_gateway(window.reading(), arrivals.reading()), buckets)


def samples_by_server(
    rows: Iterable[Row],
    label: str,
    owners: Mapping[str, str],
    counters: Mapping[str, Alternatives],
    gauges: Mapping[str, Alternatives],
) -> dict[str, dict[str, Samples]]:
    """Return the samples of the replicas of each server, by server and replica.

    The series of a replica have the same label `instance`, or without it the same labels except those that
    tell series of one metric apart.

    Args:
        rows: the series.
        label: label that contains the name of a server.
        owners: server by value of the label.
        counters: metrics of counters, by field of `Counts`.
        gauges: metrics of gauges.
    """
    values: dict[tuple[str, str], dict[float, dict[str, float]]] = {}
    for labels, samples in rows:
        server = owners.get(labels.get(label, ""))
        if server is None:
            continue
        rest = sorted(item for item in labels.items() if item[0] not in OF_METRICS)
        replica = values.setdefault((server, labels.get("instance") or str(rest)), {})
        metric = labels.get("__name__", "")
        for at_s, value in samples:
            there = replica.setdefault(at_s, {})
            there[metric] = there.get(metric, 0.0) + value
    result: dict[str, dict[str, Samples]] = {}
    for (server, name), times in values.items():
        result.setdefault(server, {})[name] = [
            (at_s, ReplicaSample(chosen(counters, there), {}, chosen(gauges, there)))
            for at_s, there in sorted(times.items())
        ]
    return result


def _last(replicas: Mapping[str, Samples]) -> list[ReplicaSample]:
    return [samples[-1][1] for samples in replicas.values() if samples]


def _buckets(rows: Iterable[Row], label: str) -> dict[str, dict[str, dict[float, float]]]:
    """Return the growth of histograms by server, quantity and upper bound, cumulative over bounds."""
    buckets: dict[str, dict[str, dict[float, float]]] = {}
    for labels, samples in rows:
        server = buckets.setdefault(labels.get(label, ""), {})
        server.setdefault(labels[QUANTITY], {})[float(labels["le"])] = samples[-1][1]
    return buckets


def _with_buckets(window: Window, cumulative: Mapping[str, Mapping[float, float]]) -> Window:
    # Prometheus extrapolates each bucket alone, so that a difference can be slightly below zero.
    buckets: dict[str, Any] = {
        name: {bound: max(0.0, count) for bound, count in in_buckets(found).items()}
        for name, found in cumulative.items()
    }
    return replace(window, counts=replace(window.counts, **buckets))


def _with_gateway(window: Window, arrivals: Window) -> Window:
    """Return a window with the arrivals and lengths that a gateway counted, and the requests in its queue."""
    names = [name for name in GATEWAY_COUNTERS if getattr(arrivals.counts, name)]
    counted: dict[str, Any] = {name: getattr(arrivals.counts, name) for name in ("arrived", *names)}
    counts = replace(window.counts, span_s=arrivals.counts.span_s, **counted)
    waiting, is_bound = window.waiting + arrivals.waiting, arrivals.lower_bound
    return replace(window, counts=counts, waiting=waiting, last=arrivals.last, lower_bound=is_bound)


def _only_servers(system: System) -> dict[str, str]:
    """Return the server of each model that only one server has, by model."""
    only_servers = grouped((server.model, name) for name, server in system.servers.items())
    return {model: names[0] for model, names in only_servers.items() if len(names) == 1}


def asked(
    source: PrometheusSource, window_s: float, fetcher: Fetcher, period_s: float = 0.0
) -> PrometheusReader:
    """Return a reader that queries Prometheus; a token file is read in each cycle, because tokens change.

    Args:
        source: settings of the source.
        window_s: length of the time window [s].
        fetcher: client that sends the requests.
        period_s: time between two reads [s].
    """

    def ask(url: str, form: Mapping[str, str]) -> str:
        token = secret_in(source.token_file, "token")
        return fetcher.text(url, form, {"Authorization": f"Bearer {token}"} if token is not None else {})

    return PrometheusReader(ask, source, window_s, period_s)
