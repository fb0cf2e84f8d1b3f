"""Metrics of the service for Prometheus: the fleet at the time of the scrape, and counters of requests.

No fleet data is stored between scrapes, so the numbers are those of `/v1/targets`. If there is no recent
plan, desired replicas are absent instead of zero.
"""

import time
from collections import Counter as Counted
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import State

from rest_server.load_ages import age_s
from rest_server.settings import Settings
from rest_server.state import Snapshot
from rest_server.v1.targets import TargetState, readings, unavailable_reason

LABELS = ("server", "model", "service_class", "accelerator")
ALIAS_LABELS = ("variant_name", "namespace", "accelerator_type")
"""Labels of the metrics that llm-inferno and related projects export."""
PREFIXES = ("/v1", "/queue")
"""Prefixes of mounted routers, which the paths of their routes do not contain."""
_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the histogram buckets of times [s]."""


class ServiceMetrics:
    """Metrics of one service."""

    def __init__(self, settings: Settings, state: State) -> None:
        """Create the metrics of a service.

        Args:
            settings: settings of the service.
            state: state of the application, with its solver workers and its fleet.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter began is of no use
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "inferplan_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "inferplan_request_seconds", "Time from a request to its answer.", ("route",),
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._solving = Histogram(
            "inferplan_solve_seconds", "Time that a solver worker spent on a request.", ("route",),
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_WorkerCollector(state))
        if settings.stateful:
            self._registry.register(_FleetCollector(settings, state))

    def observe(self, scope: Mapping[str, Any], status: int, spent_s: float) -> None:
        """Count a request that was answered.

        Args:
            scope: ASGI scope of the request.
            status: HTTP status of the response.
            spent_s: time from the request to the response [s].
        """
        route = _route(scope)
        self._requests.labels(scope["method"], route, str(status)).inc()
        self._seconds.labels(route).observe(spent_s)
        work_s = scope.get("state", {}).get("stages_s", {}).get("work")
        if work_s is not None:
            self._solving.labels(route).observe(work_s)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a text format that the client accepts, and the media type of the format.

        Args:
            accept: value of the client's ``Accept`` header.
        """
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


def _route(scope: Mapping[str, Any]) -> str:
    """Return the path of the route of a request, with parameter names in braces instead of values."""
    path: str = getattr(scope.get("route"), "path_format", "other")
    prefix = next((prefix for prefix in PREFIXES if scope["path"].startswith(f"{prefix}/")), "")
    return path if path == "other" or path.startswith(f"{prefix}/") else prefix + path


class _WorkerCollector(Collector):
    """Collector of the use of the solver workers."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """Yield the current metrics of the solver workers."""
        kinds = {"plans": self._state.workers, "studies": self._state.study_workers}
        for name, text, field in (
            ("inferplan_solver_workers", "Solver workers.", "size"),
            ("inferplan_solver_workers_busy", "Busy solver workers.", "running"),
            ("inferplan_requests_waiting", "Requests that wait for one.", "waiting"),
        ):
            values = (((kind,), getattr(workers, field)) for kind, workers in kinds.items())
            yield _gauges(name, text, ("kind",), values)


class _FleetCollector(Collector):
    """Collector of the metrics of the fleet."""

    def __init__(self, settings: Settings, state: State) -> None:
        self._settings, self._state = settings, state

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because the available metrics depend on the fleet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the current metrics of the fleet."""
        now: Snapshot = self._state.held.snapshot()
        yield _gauge("inferplan_revision", "Revision of the fleet.", now.revision)
        yield from _replicas(now)
        ages = (((name,), age_s(at_s)) for name, at_s in now.planned_loads_sent_at.items())
        text = "Time since the arrival rate was last sent."
        yield _gauges("inferplan_load_age_seconds", text, ("server",), ages)
        unknown = unavailable_reason(now, self._settings.stale_after_s)
        yield _gauge(
            "inferplan_plan_usable", "1 while the last plan is recent enough to be followed.", unknown is None
        )
        if now.plan is None:
            return
        made_at = now.plan.made_at
        yield _gauge("inferplan_plan_age_seconds", "Age of the last plan.", max(0.0, time.time() - made_at))
        if unknown is not None:
            return
        yield from _plan(now)
        fresh = [item for item in readings(now) if not item.is_stale(self._settings.stale_after_s)]
        yield from _desired(fresh, now, self._settings.metric_aliases)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _gauges(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a metric with values by the values of its labels."""
    gauges = GaugeMetricFamily(name, text, labels=labels)
    for place, value in values:
        gauges.add_metric(place, value)
    return gauges


def _labels(now: Snapshot, server: str, accelerator: str) -> tuple[str, ...]:
    item = now.entities.planned_by_role.get(server)
    if item is None:  # shared cards, which have several models and classes
        return server, "", "", accelerator
    return server, item.model, item.service_class, accelerator


def _replicas(now: Snapshot) -> Iterator[Metric]:
    """Yield the metrics of existing replicas."""
    current = GaugeMetricFamily("inferplan_current_replicas", "Existing replicas.", labels=LABELS)
    ready = GaugeMetricFamily("inferplan_ready_replicas", "Replicas reported as ready.", labels=LABELS)
    pending = GaugeMetricFamily("inferplan_pending_replicas", "Replicas reported as pending.", labels=LABELS)
    for name, server in now.entities.planned_by_role.items():
        reported = now.replicas.get(name)
        for accelerator, replicas in server.current.replicas.items() if reported is None else ():
            current.add_metric(_labels(now, name, accelerator), replicas)
        for accelerator, there in (reported or {}).items():
            labels = _labels(now, name, accelerator)
            current.add_metric(labels, there.ready + there.pending)
            ready.add_metric(labels, there.ready)
            pending.add_metric(labels, there.pending)
    yield from (current, ready, pending)


def _plan(now: Snapshot) -> Iterator[Metric]:
    """Yield the metrics of the last plan's cost and remaining capacity."""
    assert now.plan is not None
    plan = now.plan.plan
    yield _gauge(
        "inferplan_plan_cost_per_hour", "Cost of the plan [hundredths/h].", plan.total_cost_cents_per_h
    )
    yield _gauge("inferplan_plan_gap_ratio", "Relative gap between the plan and its bound.", plan.gap or 0.0)
    unserved = GaugeMetricFamily(
        "inferplan_unserved_requests_per_minute", "Unserved load.", labels=("server", "reason")
    )
    planned, routed_rpm = now.entities.planned_by_role, plan.routed_rpm
    for item in plan.unserved:
        server = now.entities.servers.get(item.server) or planned.get(item.server)
        load = 0.0 if server is None else server.current.load.arrival_rate_rpm
        load = routed_rpm.get(item.server, {}).get(item.server, load)
        unserved.add_metric((item.server, item.reason), load * (1 - item.served_fraction))
    yield unserved
    yield _gauge("inferplan_unserved_servers", "Servers that are not served in full.", len(plan.unserved))
    yield _missing_reserves(now)
    yield from _units(now)


def _missing_reserves(now: Snapshot) -> Metric:
    """Return the number of servers that lack their reserve, by class.

    Only classes that require one are included.
    """
    assert now.plan is not None
    plan, planned = now.plan.plan, now.entities.planned_by_role
    of_class = {name: planned[name].service_class for name in plan.requires_reserve if name in planned}
    lacking = Counted(of_class[name] for name in plan.lacks_reserve if name in of_class)
    values = (((name,), lacking[name]) for name in sorted({*of_class.values()}))
    text = "Servers that lack their reserve."
    return _gauges("inferplan_reserve_missing_servers", text, ("service_class",), values)


def _units(now: Snapshot) -> Iterator[Metric]:
    assert now.plan is not None
    labels, uses = ("accelerator_type",), now.plan.plan.capacity
    used = (((item.type,), item.used) for item in uses)
    yield _gauges("inferplan_units_used", "Units that the plan uses.", labels, used)
    limits = (((item.type,), item.limit) for item in uses if item.limit is not None)
    yield _gauges("inferplan_units", "Units that exist.", labels, limits)


def _desired(target_states: Sequence[TargetState], now: Snapshot, aliases: Sequence[str]) -> Iterator[Metric]:
    """Yield the metrics of desired replicas for every target.

    Args:
        now: the current state.
        aliases: other metric names under which the numbers are also exported.
    """
    desired = GaugeMetricFamily("inferplan_desired_replicas", "Desired replicas.", labels=LABELS)
    held = GaugeMetricFamily(
        "inferplan_held_target", "1 if the plan requires a different number.", labels=(*LABELS, "reason")
    )
    for item in target_states:
        labels = _labels(now, item.server, item.accelerator)
        desired.add_metric(labels, item.target.replicas)
        if item.target.held:
            held.add_metric((*labels, item.target.reason), 1)
    yield from (desired, held, _changes(now))
    for family in aliases:
        text = f"Desired replicas, under the metric name of {family}."
        alias = GaugeMetricFamily(f"{family}_desired_replicas", text, labels=ALIAS_LABELS)
        for item in target_states:
            namespace, _, name = item.server.rpartition("/")
            alias.add_metric((name, namespace, item.accelerator), item.target.replicas)
        yield alias


def _changes(now: Snapshot) -> Metric:
    changes = CounterMetricFamily(
        "inferplan_recommendation_changes", "Changes of the desired replicas.", labels=("server", "direction")
    )
    servers = {} if now.decisions is None else now.decisions.servers
    for name, decision in servers.items():
        changes.add_metric((name, "up"), decision.ups)
        changes.add_metric((name, "down"), decision.downs)
    return changes
