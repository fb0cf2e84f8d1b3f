"""Source of measurements that queries Prometheus: one query per cycle, for all servers and quantities."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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
)
from rest_server.loop.window import Counts, Hold, HoldReason, Reading, Window, in_buckets

QUANTITY = "quantity"
"""Label of the response that contains the name of the quantity."""
FIRST = COUNTERS["first_tokens"]


def _metrics(alternatives: Alternatives, form: Callable[[str], str]) -> str:
    """Return a PromQL expression for the first alternative that exists; its metrics are summed.

    Args:
        alternatives: the alternatives.
        form: function that returns the expression for one metric.
    """
    return " or ".join(
        "(" + " + ".join(form(name) for name in parts) + ")" if len(parts) > 1 else form(parts[0])
        for parts in alternatives
    )


class QueryText:
    """Builds the PromQL query of a source."""

    def __init__(self, source: PrometheusSource, window_s: float) -> None:
        self._source = source
        self._range = f"{max(1, round(1000 * window_s))}ms"

    def text(self) -> str:
        """Return the query for all quantities, each marked by a label."""
        return " or ".join(
            f'label_replace({expression}, "{QUANTITY}", "{name}", "", "")'
            for name, expression in self._parts()
        )

    def _parts(self) -> Iterator[tuple[str, str]]:
        label, span = self._source.server_label, self._range
        for name, alternatives in COUNTERS.items():
            yield name, self._increase(alternatives, label)
        for name, alternatives in HISTOGRAMS.items():
            yield name, self._increase(alternatives, f"{label}, le")
        for name, alternatives in GAUGES.items():
            yield name, _metrics(alternatives, lambda metric: f"sum by ({label}) ({self._select(metric)})")
        yield "waiting_before", _metrics(GAUGES["waiting"], self._before)
        recent = f"time() - timestamp({{}}) < {self._source.stale_s:g}"
        first = tuple((parts[0],) for parts in GAUGES["waiting"])
        yield (
            "reporting",
            _metrics(first, lambda metric: f"count by ({label}) ({recent.format(self._select(metric))})"),
        )
        yield "history", f"count(up offset {span})"
        if self._source.gateway_label is not None:
            mine = self._source.gateway_label
            for name, alternatives in GATEWAY_COUNTERS.items():
                yield f"gateway_{name}", self._increase(alternatives, mine, gateway=True)
            for name, alternatives in GATEWAY_GAUGES.items():
                yield (
                    f"gateway_{name}",
                    _metrics(alternatives, lambda metric: f"sum by ({mine}) ({metric})"),
                )

    def _increase(self, alternatives: Alternatives, labels: str, *, gateway: bool = False) -> str:
        def form(metric: str) -> str:
            chosen = metric if gateway else self._select(metric)
            return f"sum by ({labels}) (increase({chosen}[{self._range}]))"

        return _metrics(alternatives, form)

    def _before(self, metric: str) -> str:
        """Return the expression for requests waiting at the start of the window.

        Queues that were lost in a restart do not count.
        """
        place = next(i for i, parts in enumerate(GAUGES["waiting"]) if metric in parts)
        restarted = f"resets({self._select(FIRST[place][0])}[{self._range}]) > 0"
        waited = f"{self._select(metric)} offset {self._range}"
        return f"sum by ({self._source.server_label}) ({waited} unless ({restarted}))"

    def _select(self, metric: str) -> str:
        return f"{metric}{{{self._source.selector}}}" if self._source.selector else metric


class _Values(NamedTuple):
    """Values of one server in a response."""

    single: dict[str, float]
    buckets: dict[str, dict[float, float]]


class PrometheusReader:
    """Source of measurements that queries Prometheus in each cycle of the loop."""

    def __init__(
        self, ask: Callable[[str, Mapping[str, str]], str], source: PrometheusSource, window_s: float
    ) -> None:
        """Prepare the query.

        Args:
            ask: function that posts a form to an address and returns the body, or raises `SourceError`.
            source: settings of the source.
            window_s: length of the time window [s].
        """
        self._ask = ask
        self._source = source
        self._window_s = window_s
        self._query = QueryText(source, window_s).text()
        self.replicas: Mapping[tuple[str, str], int] = {}
        """Always empty, because the metrics do not state the accelerator of a replica."""

    def read(self, system: System, now_s: float) -> dict[str, Reading]:
        """Return the window of each server up to a time, or the reason why there is none."""
        names = list(system.servers)
        try:
            rows = self._rows(now_s)
        except SourceError as error:
            return dict.fromkeys(names, Hold(HoldReason.source_down, str(error)))
        owners = {name: name for name in names} | _only_servers(system)
        found: dict[str, _Values] = {name: _Values({}, {}) for name in names}
        history = False
        for labels, value in rows:
            quantity = labels[QUANTITY]
            if quantity == "history":
                history = True
                continue
            is_gateway = quantity.startswith("gateway_")
            label = str(self._source.gateway_label if is_gateway else self._source.server_label)
            name = owners.get(labels.get(label, "")) if is_gateway else labels.get(label, "")
            if name not in found:
                continue
            if "le" in labels:
                found[name].buckets.setdefault(quantity, {})[float(labels["le"])] = value
            else:
                found[name].single[quantity] = value
        if not history:
            hold = Hold(HoldReason.window_not_full, f"Prometheus has no values of {self._window_s:g} s ago")
            return dict.fromkeys(names, hold)
        return {name: self._reading(values) for name, values in found.items()}

    def _rows(self, now_s: float) -> list[tuple[dict[str, str], float]]:
        """Return the response as labels and values.

        Raises:
            SourceError: there is no response, or it cannot be read.
        """
        url = f"{self._source.url.rstrip('/')}/api/v1/query"
        try:
            found = json.loads(self._ask(url, {"query": self._query, "time": f"{now_s:.3f}"}))
            result: list[dict[str, Any]] = found["data"]["result"]
            return [(item["metric"], float(item["value"][1])) for item in result]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise SourceError(f"{url}: the answer cannot be read: {error!r}") from None

    def _reading(self, values: _Values) -> Reading:
        single = dict(values.single)
        reporting = single.pop("reporting", 0.0)
        seen = [name for name in single if name.startswith("gateway_")]
        gateway = {name.removeprefix("gateway_"): single.pop(name) for name in seen}
        if self._source.gateway_label is not None and "arrived" not in gateway:
            return Hold(
                HoldReason.no_series, f"no metric {GATEWAY_COUNTERS['arrived'][0][0]} for this server"
            )
        if self._source.gateway_label is None and not {"waiting", "first_tokens"} <= single.keys():
            return Hold(HoldReason.no_series, f"no metrics {FIRST[0][0]} and {GAUGES['waiting'][0][0]}")
        waiting, running = single.pop("waiting", 0.0), single.pop("running", 0.0)
        growth = waiting - single.pop("waiting_before", 0.0)
        queue = gateway.pop("waiting", 0.0)
        # Prometheus extrapolates each bucket alone, so that a difference can be slightly below zero.
        buckets = {
            name: {bound: max(0.0, count) for bound, count in in_buckets(found).items()}
            for name, found in values.buckets.items()
        }
        counts: dict[str, Any] = single | gateway | buckets
        return Window(
            Counts(self._window_s, waiting_growth=growth, **counts),
            waiting + queue,
            running,
            int(reporting) if math.isfinite(reporting) else 0,
        )


def _only_servers(system: System) -> dict[str, str]:
    """Return the server of each model that only one server has, by model."""
    found = grouped((server.model, name) for name, server in system.servers.items())
    return {model: names[0] for model, names in found.items() if len(names) == 1}


def asked(source: PrometheusSource, window_s: float, fetcher: Fetcher) -> PrometheusReader:
    """Return a reader that queries Prometheus; a token file is read in each cycle, because tokens change.

    Args:
        source: settings of the source.
        window_s: length of the time window [s].
        fetcher: client that sends the requests.
    """

    def ask(url: str, form: Mapping[str, str]) -> str:
        token = secret_in(source.token_file, "token")
        return fetcher.text(url, form, {"Authorization": f"Bearer {token}"} if token is not None else {})

    return PrometheusReader(ask, source, window_s)
