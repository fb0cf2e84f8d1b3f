# ruff: noqa: ANN001, ANN201, ANN202  compiled functions have the types of their arguments
"""Days of one scaled service, request by request: replicas with slots, and a common or own queues.

A request with n in its batch takes (base + slope n) times its work. Replicas that start are ready after the
start-up time; those that stop complete their requests, and those of their own queue. `KINDS` has the kinds of
days of docs/loop.md; another seed gives another day of the same kind.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit

HOUR_S, DAY_S, BIN_S = 3600.0, 86_400.0, 5.0
PERIOD_S = 15.0
P95_PERIODS = 4
"""Periods over which the 95th percentile counts."""
ENDED = 1e-9


@dataclass(frozen=True)
class Service:
    """Properties of a service and its replicas."""

    slots: int = 4
    base_s: float = 0.2
    slope_s: float = 0.025
    work_cv: float = 0.5
    """Coefficient of variation of lognormal works of mean 1; 0: all works are 1."""
    exponential: bool = False
    """Whether works are exponential instead."""
    startup_s: float = 150.0
    late_s: float = 0.7
    late_is_wait: bool = False
    """Whether a request is late by its wait; otherwise by its latency."""
    is_common: bool = True
    """Whether the replicas serve one queue; otherwise the least loaded replica gets a request."""
    within_rps: float = 10.58201
    """Highest rate of a replica within the targets, by the plan."""
    most_rps: float = 13.32
    """Highest throughput of a replica."""
    most: int = 48
    """Largest number of replicas."""


MAIN = Service()
CHAT = Service(
    base_s=0.80, slope_s=0.0345, exponential=True, startup_s=30.0, late_s=1.4, late_is_wait=True,
    is_common=False, within_rps=3.73, most_rps=4.264, most=40,
)  # fmt: skip
"""Near that of loop_steps.py."""
LIVE = replace(CHAT, base_s=0.97, slope_s=0.0399, within_rps=2.97, most_rps=3.541, most=12)
"""Near that of live_rules.py."""
BIG = Service(
    slots=16, base_s=0.6, slope_s=0.03, work_cv=0.0, late_s=2.4, within_rps=11.0, most_rps=16 / 1.08
)  # fmt: skip
EXPONENTIAL = Service(exponential=True, late_s=1.0, within_rps=10.3, most_rps=13.333)


@njit(cache=True)
def _filled(pod, request, n, v, fin, who, works):  # type: ignore[no-untyped-def]
    """Put a request into the batch of a pod whose progress is up to date."""
    fin[pod, n[pod]] = v[pod] + works[request]
    who[pod, n[pod]] = request
    n[pod] += 1


@njit(cache=True)
def _advanced(now_s, pod, n, v, seen_s, base_s, slope_s):  # type: ignore[no-untyped-def]
    """Bring the progress of a pod up to date."""
    if n[pod]:
        v[pod] += (now_s - seen_s[pod]) / (base_s + slope_s * n[pod])
    seen_s[pod] = now_s


@njit(cache=True)
def _due(now_s, pod, n, v, fin, base_s, slope_s):  # type: ignore[no-untyped-def]
    """Return the time of the next completion of a pod."""
    if not n[pod]:
        return math.inf
    return now_s + max(0.0, fin[pod, : n[pod]].min() - v[pod]) * (base_s + slope_s * n[pod])


@njit(cache=True)
def advance(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0912, PLR0915
    until_s, now_s, place, head, form, arrivals, works, start_s, end_s, n, v, seen_s, due_s, ready_s, fin,
    who, queues, following, active,
):  # fmt: skip
    """Run the service until a time; return time in batches [s], completions, the next request and the queue.

    `queues` has the first, the last and the number of the waiting requests of each pod, shape (M, 3).
    """
    slots, base_s, slope_s, is_common = form
    busy_s, completed = 0.0, 0
    while True:
        next_s, event = until_s, -1
        for pod in active:
            if due_s[pod] < next_s:
                next_s, event = due_s[pod], pod
            if is_common and place > head and not n[pod] and now_s < ready_s[pod] < next_s:
                next_s, event = ready_s[pod], -2
        if place < len(arrivals) and arrivals[place] < next_s:
            next_s, event = arrivals[place], -3
        busy_s += (next_s - now_s) * n[active].sum()
        now_s, pod = next_s, event
        if event == -1:
            return busy_s, completed, place, head
        if event >= 0:
            _advanced(now_s, pod, n, v, seen_s, base_s, slope_s)
            kept = 0
            for k in range(n[pod]):
                if fin[pod, k] - v[pod] <= ENDED:
                    end_s[who[pod, k]] = now_s
                    completed += 1
                else:
                    fin[pod, kept], who[pod, kept] = fin[pod, k], who[pod, k]
                    kept += 1
            n[pod] = kept
        if event == -3:
            place += 1
            if not is_common:
                pod, least = -1, 0
                for one in active:
                    load = n[one] + queues[one, 2]
                    if ready_s[one] <= now_s and (pod < 0 or load < least):
                        pod, least = one, load
                _advanced(now_s, pod, n, v, seen_s, base_s, slope_s)
                following[place - 1] = -1
                if queues[pod, 2]:
                    following[queues[pod, 1]] = place - 1
                else:
                    queues[pod, 0] = place - 1
                queues[pod, 1] = place - 1
                queues[pod, 2] += 1
        if is_common:
            while place > head:
                best = -1
                for one in active:
                    free = ready_s[one] <= now_s and n[one] < slots
                    if free and (best < 0 or n[one] < n[best]):
                        best = one
                if best < 0:
                    break
                _advanced(now_s, best, n, v, seen_s, base_s, slope_s)
                _filled(best, head, n, v, fin, who, works)
                start_s[head] = now_s
                due_s[best] = _due(now_s, best, n, v, fin, base_s, slope_s)
                head += 1
        elif queues[pod, 2] and n[pod] < slots:
            _advanced(now_s, pod, n, v, seen_s, base_s, slope_s)
            while queues[pod, 2] and n[pod] < slots:
                request = queues[pod, 0]
                queues[pod, 0] = following[request]
                queues[pod, 2] -= 1
                _filled(pod, request, n, v, fin, who, works)
                start_s[request] = now_s
        if pod >= 0:
            due_s[pod] = _due(now_s, pod, n, v, fin, base_s, slope_s)


class Seen(NamedTuple):
    """Measurements of the last period."""

    now_s: float
    arrived: int
    started: int
    completed: int
    waiting: int
    running: int
    mean_running: float
    ready: int
    desired: int
    p95_s: float
    of_replicas: tuple[float, ...] | None = None
    """Number of waiting requests of each ready replica; None with a common queue."""


Rule = Callable[[Seen], int]
"""Desired replicas."""


class ScaledService:
    """A service and its replicas over time."""

    def __init__(self, form: Service, arrivals: Any, works: Any, pods: int, period_s: float) -> None:
        self.form, self.arrivals, self.works, self.period_s = form, arrivals, works, period_s
        self.start_s, self.end_s = (np.full(len(arrivals), np.inf) for _ in range(2))
        self.following = np.full(len(arrivals), -1)
        self.n = np.zeros(form.most, np.int64)
        self.v, self.seen_s = np.zeros(form.most), np.zeros(form.most)
        self.due_s, self.ready_s = np.full(form.most, np.inf), np.full(form.most, np.inf)
        """Times at which replicas are ready; infinite for absent and for stopping ones."""
        self.fin = np.zeros((form.most, form.slots))
        self.who = np.zeros((form.most, form.slots), np.int64)
        self.queues = np.zeros((form.most, 3), np.int64)
        self.ready_s[:pods] = 0.0
        self.desired, self.place, self.head = pods, 0, 0
        self.now_s = self.pod_s = 0.0
        self._slow: list[tuple[int, int]] = []

    @property
    def _active(self) -> Any:
        return np.flatnonzero(np.isfinite(self.ready_s) | (self.n > 0) | (self.queues[:, 2] > 0))

    def scale(self, wanted: int) -> None:
        """Start or stop replicas; those that are not ready stop first, others complete their requests."""
        live = np.flatnonzero(np.isfinite(self.ready_s))
        free = np.setdiff1d(np.arange(self.form.most), self._active)
        wanted = max(1, min(wanted, len(live) + len(free)))
        self.ready_s[free[: max(0, wanted - len(live))]] = self.now_s + self.form.startup_s
        for pod in sorted(live, key=lambda pod: -self.ready_s[pod])[: max(0, len(live) - wanted)]:
            self.ready_s[pod] = np.inf
        self.desired = wanted

    def run(self, until_s: float) -> Seen:
        """Run one period; replicas count until they are empty."""
        before, started = self.place, self._started
        busy_s, completed, self.place, self.head = advance(
            until_s, self.now_s, self.place, self.head,
            (self.form.slots, self.form.base_s, self.form.slope_s, self.form.is_common),
            self.arrivals, self.works, self.start_s, self.end_s, self.n, self.v, self.seen_s, self.due_s,
            self.ready_s, self.fin, self.who, self.queues, self.following, self._active,
        )  # fmt: skip
        self.pod_s += (until_s - self.now_s) * len(self._active)
        self.now_s = until_s
        ready = self.ready_s <= until_s
        each = None if self.form.is_common else tuple(self.queues[ready, 2].astype(float).tolist())
        return Seen(
            now_s=until_s,
            arrived=self.place - before,
            started=self._started - started,
            completed=completed,
            waiting=self.place - self._started,
            running=int(self.n.sum()),
            mean_running=busy_s / self.period_s,
            ready=int(ready.sum()),
            desired=self.desired,
            p95_s=self._p95_s(until_s),
            of_replicas=each,
        )

    @property
    def _started(self) -> int:
        return self.place - int(self.queues[:, 2].sum()) if not self.form.is_common else self.head

    def _p95_s(self, now_s: float) -> float:
        """Return the 95th percentile of the latencies, or waits, of the last minute."""
        recent = slice(max(0, self.place - 8000), self.place)
        ends = self.start_s[recent] if self.form.late_is_wait else self.end_s[recent]
        done = (ends <= now_s) & (ends > now_s - P95_PERIODS * PERIOD_S)
        found = (ends - self.arrivals[recent])[done]
        return float(np.percentile(found, 95)) if len(found) else 0.0


class Outcome(NamedTuple):
    """Outcome of a day."""

    hours: float
    """Replica-hours."""
    slow: float
    """Share of late requests."""
    lost: float
    """Share of requests above 5 s."""
    changes: int
    most: int


def simulated(form: Service, day: "Day", rule: Rule, pods: int, period_s: float = PERIOD_S) -> Outcome:
    """Return the outcome of a day under a rule that starts with some replicas."""
    service, changes, most = ScaledService(form, day.arrivals, day.works, pods, period_s), 0, pods
    for k in range(1, round(day.end_s / period_s) + 1):
        before = service.desired
        service.scale(rule(service.run(k * period_s)))
        changes += service.desired != before
        most = max(most, service.desired)
    count = service.place
    ends = service.start_s if form.late_is_wait else service.end_s
    times_s = (ends - day.arrivals)[:count]
    slow, lost = float((times_s > form.late_s).mean()), float((times_s > 5.0).mean())
    return Outcome(service.pod_s / 3600, slow, lost, changes, most)


# --- days ----------------------------------------------------------------------------------------------


class Day(NamedTuple):
    """Requests of a day."""

    arrivals: Any
    works: Any
    rates_rps: Any
    """True rate in each bin of `BIN_S`."""
    end_s: float


Rates = Callable[[Any], Any]
"""Function that returns the rates of a kind in bins of `BIN_S` [requests/s], given a random generator."""


class Kind(NamedTuple):
    """A kind of day."""

    form: Service
    rates: Rates
    pods: int
    """Replicas at the beginning."""


def times_s(hours: float) -> Any:
    """Return the middles of bins [s]."""
    return np.arange(0, hours * HOUR_S, BIN_S) + BIN_S / 2


def calm(low_rps: float, high_rps: float, hours: float = 24.0) -> Any:
    """Return a rate that is low at the beginning and the end, and high in the middle."""
    middle, half = (low_rps + high_rps) / 2, (high_rps - low_rps) / 2
    return middle - half * np.cos(2 * np.pi * times_s(hours) / (hours * HOUR_S))


def bursty(begin_h: float = 0.0, end_h: float = 24.0) -> Any:
    """Return a calm day of 15 to 100 requests/s with three bursts of factor 1.8 for 20 minutes."""
    found, at_s = calm(15, 100), times_s(24)
    for begin_s in (5 * HOUR_S, 11 * HOUR_S, 17 * HOUR_S):
        found[(at_s >= begin_s) & (at_s < begin_s + 1200)] *= 1.8
    return found[round(begin_h * HOUR_S / BIN_S) : round(end_h * HOUR_S / BIN_S)]


def step(low_rps: float, high_rps: float, begin_s: float, end_s: float, hours: float) -> Any:
    """Return a step."""
    at_s = times_s(hours)
    return np.where((at_s >= begin_s) & (at_s < end_s), float(high_rps), float(low_rps))


def ramp(up_s: float) -> Any:
    """Return a ramp from 20 to 100 requests/s after half an hour, and back half an hour later."""
    ends = [0, 1800, 1800 + up_s, 3600 + up_s, 3600 + 2 * up_s, 7200]
    return np.interp(times_s(2), ends, [20, 20, 100, 100, 20, 20])


def random_bursts(
    rng: Any, per_h: float, size: Callable[[Any], float], length_s: Callable[[Any], float]
) -> Any:
    """Return twelve hours of 15 to 80 requests/s with bursts at random times."""
    at_s, factor = times_s(12), np.ones(len(times_s(12)))
    for _ in range(rng.poisson(12 * per_h)):
        begin_s, burst_s, high = rng.uniform(0, 12 * HOUR_S), length_s(rng), size(rng)
        inside = (at_s >= begin_s) & (at_s < begin_s + burst_s)
        factor[inside] = np.maximum(factor[inside], high)
    return calm(15, 80, 12) * factor


def _bursts_a(rng: Any) -> Any:
    return random_bursts(rng, 0.5, lambda g: g.uniform(1.3, 3.0), lambda g: g.lognormal(math.log(480), 0.7))


def _bursts_b(rng: Any) -> Any:
    return random_bursts(
        rng, 0.8, lambda g: min(4.0, 1.2 * (1 + g.pareto(2.5))),
        lambda g: math.exp(g.uniform(math.log(60), math.log(3600))),
    )  # fmt: skip


def _starting(startup_s: float) -> Service:
    return replace(MAIN, startup_s=startup_s)


KINDS: Mapping[str, Kind] = {
    "calm day": Kind(MAIN, lambda _: calm(15, 100), 4),
    "bursty day": Kind(MAIN, lambda _: bursty(), 4),
    "live step x6, 30 s": Kind(LIVE, lambda _: step(2, 12, 120, 360, 1 / 6), 1),
    "loop_steps x6, 30 s": Kind(CHAT, lambda _: step(3, 18, 300, 900, 1500 / HOUR_S), 2),
    "step x2, 30 s": Kind(_starting(30), lambda _: step(40, 80, 1800, 3600, 2), 4),
    "step x2, 150 s": Kind(MAIN, lambda _: step(40, 80, 1800, 3600, 2), 4),
    "step x2, 300 s": Kind(_starting(300), lambda _: step(40, 80, 1800, 3600, 2), 4),
    "step x6, 150 s": Kind(MAIN, lambda _: step(15, 90, 1800, 3600, 2), 2),
    "ramp x5 in 10 min, 150 s": Kind(MAIN, lambda _: ramp(600), 2),
    "ramp x5 in 2 min, 300 s": Kind(_starting(300), lambda _: ramp(120), 2),
    "random bursts A, 150 s": Kind(MAIN, _bursts_a, 2),
    "random bursts B, 30 s": Kind(_starting(30), _bursts_b, 2),
    "random bursts B, 150 s": Kind(MAIN, _bursts_b, 2),
    "random bursts B, 300 s": Kind(_starting(300), _bursts_b, 2),
    "bursty 9 h, 16 slots": Kind(BIG, lambda _: bursty(9, 18), 8),
    "bursty 9 h, exponential work": Kind(EXPONENTIAL, lambda _: bursty(9, 18), 8),
    "bursty 9 h, own queues": Kind(replace(MAIN, is_common=False), lambda _: bursty(9, 18), 8),
}
"""Kinds of days; the last number of a name is the start-up time."""


def day_of(kind: Kind, seed: int) -> Day:
    """Return a day of a kind: Poisson arrivals, and works."""
    rng = np.random.default_rng([seed, 68])
    rates = kind.rates(rng)
    counts = rng.poisson(rates * BIN_S)
    arrivals = np.sort(np.repeat(np.arange(len(rates)) * BIN_S, counts) + rng.uniform(0, BIN_S, counts.sum()))
    form = kind.form
    sigma = math.sqrt(math.log1p(form.work_cv**2))
    works = rng.exponential(1.0, len(arrivals)) if form.exponential else (
        rng.lognormal(-(sigma**2) / 2, sigma, len(arrivals))
    )  # fmt: skip
    return Day(arrivals, works, rates, len(rates) * BIN_S)
