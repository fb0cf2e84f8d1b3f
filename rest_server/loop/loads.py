"""Load of each server, estimated from its measurements, and the state kept between measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from optimizer.errors import SpecError
from optimizer.kinds.fields import Load
from optimizer.schema.assumptions import check_variability
from optimizer.spec.system import System
from optimizer.stabilisation.arrivals import ArrivalCount
from optimizer.stabilisation.demand import DemandMemory, ServerDemand
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.config import LoopConfig
from rest_server.loop.estimators import LengthMemory, completions_rps, offered_rps
from rest_server.loop.samples import FULL
from rest_server.loop.shapes import measured_shares, with_measured_shapes
from rest_server.loop.window import Hold, HoldReason, Reading, Window

NO_LOAD = Load()
SAME_LENGTH = 0.03
"""Relative change of a mean token length that is ignored, so that noise does not change sizings."""
LEAST_NEW = 0.2
"""Least new part of the time span of a count, so that it counts."""
SAME_VARIATION = 0.15
"""Absolute change of a coefficient of variation that is ignored."""


@dataclass(frozen=True, slots=True)
class EstimatedLoad:
    """Load of a server, estimated from measurements."""

    offered_rps: float
    """Arrival rate [requests/s]."""
    completions_rps: float
    """Rate of completed requests [requests/s]; for comparison only."""
    backlog: float
    """Requests that will wait when a replica that is ordered now is ready."""
    in_tokens: float | None = None
    """Mean prompt length [tokens]; None if unknown, like the following three values."""
    out_tokens: float | None = None
    in_tokens_cv: float | None = None
    out_tokens_cv: float | None = None
    shares: tuple[float, ...] | None = None
    """Share of each request shape of the document; None if unknown, or if it has no shapes."""
    prefix_share: float | None = None
    """Fraction of the prompt tokens that the prefix cache contained; None if unknown."""
    forecast_rps: float | None = None
    """Forecast arrival rate [requests/s]; None without a forecast."""
    arrived_rps: float | None = None
    """Arrival rate since the last count [requests/s]; None without a new sample."""
    demand: ServerDemand | None = None
    """Demand by the counts of single periods; None: plans are made for `offered_rps`."""
    waiting: float = 0.0
    """Number of waiting requests."""
    backlog_rps: float = 0.0
    """Rate that the replicas for the backlog serve within the targets [requests/s]."""

    @property
    def rate_rps(self) -> float:
        """Arrival rate for which plans are made, without the backlog [requests/s]."""
        return self.offered_rps if self.demand is None else self.demand.rate_rps

    @property
    def planned_rps(self) -> float:
        """Arrival rate that needs as many replicas as the arrivals and the backlog [requests/s]."""
        return self.rate_rps + self.backlog_rps


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """State of the load estimation for one server, kept between cycles."""

    lengths: LengthMemory = field(default_factory=LengthMemory)
    demand: DemandMemory = field(default_factory=DemandMemory)
    load: EstimatedLoad | None = None
    """Last measured load; None if there was none."""
    measured_s: float | None = None
    """Time of the last measured load [s since the epoch]; None if there was none."""
    ready: Mapping[str, int] = field(default_factory=dict)
    """Number of ready replicas by accelerator, if no others exist or are desired."""
    ready_since_s: float = 0.0
    """Time since which the ready replicas have not changed [s since the epoch]."""

    def with_ready(self, ready: Mapping[str, int], now_s: float) -> "LoadMemory":
        """Return the state with the current number of ready replicas."""
        return self if ready == self.ready else replace(self, ready=ready, ready_since_s=now_s)


def with_reading(
    reading: Reading,
    last: LoadMemory,
    config: LoopConfig,
    now_s: float,
    stated: Load = NO_LOAD,
    startup_s: float | None = None,
) -> tuple[LoadMemory, Hold | None]:
    """Return the state updated with a reading, and the reason if the reading gives no load.

    Args:
        reading: measurements of a server.
        last: the state so far.
        config: configuration of the loop.
        now_s: time [s since the epoch].
        stated: load of the document, with its request shapes.
        startup_s: time that a replica of the server needs to become ready [s]; None: the longest one.
    """
    if isinstance(reading, Hold):
        return last, reading
    hold = _problem(reading, last, config, now_s)
    if hold is not None:
        return last, hold
    lengths = last.lengths.after(reading, now_s)
    share = min(1.0, reading.reporting / reading.expected) if reading.expected else 1.0
    before = last.load or EstimatedLoad(0.0, 0.0, 0.0)
    counted = 1.0 if reading.counts.arrived is not None else share  # a gateway counts for all replicas
    rate_rps, demand = offered_rps(reading) / counted, last.demand
    if reading.lower_bound:
        rate_rps = max(rate_rps, before.offered_rps)
    count, settings = _new_count(reading, last, counted, now_s), config.forecast_settings
    startup_s = config.longest_startup_s if startup_s is None else startup_s
    if count is not None:
        demand = demand.after(count, startup_s, settings)
    expected = demand.at(startup_s + config.period_s, settings, startup_s if config.releases_early else None)
    load = EstimatedLoad(
        offered_rps=rate_rps,
        completions_rps=completions_rps(reading) / share,
        backlog=0.0,
        in_tokens=_settled(lengths.in_tokens, before.in_tokens, SAME_LENGTH),
        out_tokens=_settled(lengths.out_tokens, before.out_tokens, SAME_LENGTH),
        in_tokens_cv=_settled(lengths.in_tokens_cv, before.in_tokens_cv, 0.0, SAME_VARIATION),
        out_tokens_cv=_settled(lengths.out_tokens_cv, before.out_tokens_cv, 0.0, SAME_VARIATION),
        shares=measured_shares(lengths.counts.prompt_buckets, stated.shapes),
        prefix_share=lengths.prefix_share,
        forecast_rps=expected.forecast_rps,
        arrived_rps=None if count is None else count.rate_rps,
        demand=expected,
        waiting=max(0.0, reading.waiting) / share,
    )
    return replace(last, lengths=lengths, demand=demand, load=load, measured_s=now_s), None


def _new_count(window: Window, last: LoadMemory, share: float, now_s: float) -> ArrivalCount | None:
    """Return the arrivals since the last count; None if there is no new sample.

    Args:
        window: the measurements.
        last: the state so far.
        share: fraction of the replicas whose arrivals are counted.
        now_s: time [s since the epoch].
    """
    counts, before = window.counts, last.demand.history.last
    count = window.last or ArrivalCount(now_s, counts.span_s, counts.arrivals)
    span_s = count.span_s if before is None else min(count.span_s, count.end_s - before.end_s)
    if span_s < LEAST_NEW * count.span_s:
        return None
    number = count.number * span_s / count.span_s / share
    if window.lower_bound and last.load is not None and last.load.demand is not None:
        number = max(number, last.load.demand.now.rate_rps * span_s)
    return replace(count, span_s=span_s, number=number)


def _problem(window: Window, last: LoadMemory, config: LoopConfig, now_s: float) -> Hold | None:
    """Return the reason why no load can be estimated from a window; None if one can.

    If the ready replicas have not changed during the window, its samples must cover all of them, because a
    replica that reports again after a long time looks like a new one.
    """
    if not window.is_finite:
        return Hold(HoldReason.not_a_number, "a metric is not a number")
    if not window.reporting and window.counts.arrived is None:
        return Hold(HoldReason.no_series, "no replica reports")
    if window.counts.span_s <= 0:
        return Hold(HoldReason.window_not_full, "nothing is counted yet")
    if window.expected and window.reporting < config.coverage * window.expected:
        text = f"{window.reporting} of {window.expected} replicas report, below {config.coverage:.0%}"
        return Hold(HoldReason.partial, text)
    ready, covered_s = sum(last.ready.values()), window.covered_s
    unchanged = ready == window.expected and now_s - last.ready_since_s >= config.window_s
    existing_s = ready * config.window_s
    is_known = unchanged and covered_s is not None and window.counts.arrived is None
    if is_known and (covered_s or 0.0) < FULL * config.coverage * existing_s:
        text = f"samples cover {covered_s:.0f} s of the {existing_s:g} s of {ready} replicas"
        return Hold(HoldReason.window_not_full, text)
    return None


def _settled(new: float | None, old: float | None, share: float, distance: float = 0.0) -> float | None:
    """Return the new value, or the old one if the change is small.

    Args:
        new: new value; None if unknown.
        old: old value; None if unknown.
        share: relative change that is small.
        distance: absolute change that is small.
    """
    if new is None or old is None:
        return old if new is None else new
    return old if abs(new - old) <= share * abs(old) + distance else new


def with_measured_loads(system: System, loads: Mapping[str, EstimatedLoad], *, variation: bool) -> System:
    """Return a system with the expected rates and measured lengths, shares of shapes and hit rates.

    Unknown values stay as documented, and so do the lengths of request shapes.
    """
    changed = {}
    for name, estimate in loads.items():
        server = system.servers[name]
        load = measured_load(server.current.load, estimate)
        if variation and not load.shapes:
            names = ("in_tokens_cv", "out_tokens_cv")
            varied = _with(load, {name: getattr(estimate, name) for name in names})
            load = varied if uses_variability(system, server.model, varied) else load
        changed[name] = server.with_load(load)
    return system.with_planned(changed)


def measured_load(stated: Load, estimate: EstimatedLoad) -> Load:
    """Return a load with the expected rate and measured lengths, or shares of shapes, and hit rates."""
    given = {
        "arrival_rate_rpm": estimate.rate_rps * SECONDS_PER_MINUTE,
        "in_tokens": estimate.in_tokens,
        "out_tokens": None if estimate.out_tokens is None else max(1.0, estimate.out_tokens),
    }
    if stated.shapes:
        given = {"arrival_rate_rpm": given["arrival_rate_rpm"]}
    elif estimate.in_tokens is not None and stated.prefix_tokens:
        given["in_tokens"] = max(estimate.in_tokens, stated.prefix_tokens + 1)
    return with_measured_shapes(_with(stated, given), estimate.shares, estimate.prefix_share)


def uses_variability(system: System, model: str, load: Load) -> bool:
    """Return whether the queue models of a model can use the variation of a load."""
    try:
        check_variability(load, "", system.profiles_of(model))
    except SpecError:
        return False
    return True


def _with(load: Load, given: Mapping[str, float | None]) -> Load:
    return load.model_copy(update={name: value for name, value in given.items() if value is not None})
