"""Drift of profiles: measured token times against those of the profile at the measured load.

The mean inter-token latency of a window is compared with the prediction of the queue model for the ready
replicas at the offered rate, if the server is in a steady state. An average over some minutes beyond a limit
is an alarm, and proposes a common factor for the times of the profile. One load cannot separate the
parameters of a profile, so they change together, and by bounded steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log, sqrt

from optimizer.candidates.caution import slower
from optimizer.candidates.measuring import performances
from optimizer.candidates.pairs import arrays_of
from optimizer.errors import SpecError
from optimizer.plan import Plan, Pool
from optimizer.plan.rows import pool_rows
from optimizer.queueing.performance import MS_PER_S
from optimizer.spec.assumptions import check_variability
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.config import DriftSettings
from rest_server.loop.loads import EstimatedLoad
from rest_server.loop.window import Window

MIN_TOKENS = 1000.0
"""Minimum number of recent tokens behind an alarm."""
MAX_STEP = 1.25
"""Largest factor of one refit."""
STEADY = 0.05
"""Maximum rate of the backlog, relative to the offered rate, of a steady state."""


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """Recent comparisons of a profile's token times."""

    seen_s: float = 0.0
    tokens: float = 0.0
    """Recent tokens; older ones have less weight."""
    sum_log: float = 0.0
    """Sum over these tokens of the logarithm of measured over predicted time."""
    factor: float = 1.0
    """Applied factor of its times."""
    alarm: bool = False

    @property
    def ratio(self) -> float | None:
        """Measured over predicted token time; None if unknown."""
        return exp(self.sum_log / self.tokens) if self.tokens >= MIN_TOKENS else None

    @property
    def proposal(self) -> float | None:
        """Factor by which the profile's times should change; None without an alarm."""
        ratio = self.ratio
        return min(MAX_STEP, max(1 / MAX_STEP, ratio)) if self.alarm and ratio is not None else None

    def after(
        self, measured_ms: float, predicted_ms: float, tokens: float, now_s: float, settings: DriftSettings
    ) -> "DriftMemory":
        """Return the memory with a comparison.

        Args:
            measured_ms: mean inter-token latency.
            predicted_ms: that of the profile.
            tokens: number of new tokens.
            now_s: time [s since the epoch].
            settings: limit and time constant.
        """
        kept = exp(-max(0.0, now_s - self.seen_s) / settings.span_s)
        count = self.tokens * kept + tokens
        total = self.sum_log * kept + tokens * log(measured_ms / predicted_ms)
        found = DriftMemory(now_s, count, total, self.factor)
        ratio = found.ratio
        limit = settings.limit / 2 if self.alarm else settings.limit  # an alarm ends well below its limit
        alarm = ratio is not None and abs(log(ratio)) > log(1 + limit)
        found = DriftMemory(now_s, count, total, self.factor, alarm)
        if found.proposal is None or settings.refit != "apply":
            return found
        return DriftMemory(now_s, factor=self.factor * found.proposal)


Drifts = Mapping[str, DriftMemory]
"""Memories by profile: model and accelerator, with a slash between them."""


def with_factors(system: System, drifts: Drifts) -> System:
    """Return a system whose profiles have the applied factors."""
    factors = {key: found.factor for key, found in drifts.items() if found.factor != 1.0}
    if not factors:
        return system
    changed = {
        (model, on): slower(profile, factors.get(key_of(model, on), 1.0))
        for (model, on), profile in system.profiles.items()
    }
    return replace(system, profiles=changed)


def key_of(model: str, accelerator: str) -> str:
    """Return the key of a profile."""
    return f"{model}/{accelerator}"


def compared(
    drifts: Drifts,
    system: System,
    plan: Plan,
    steady: Mapping[str, tuple[Window, EstimatedLoad, Mapping[str, int]]],
    now_s: float,
    settings: DriftSettings,
) -> dict[str, DriftMemory]:
    """Return the memories with the windows of servers in a steady state.

    Args:
        drifts: the memories.
        system: the planned system.
        plan: its plan.
        steady: servers whose replicas have not changed during the window: measurements, load, and ready
            replicas by accelerator.
        now_s: time [s since the epoch].
        settings: limit and time constant.
    """
    found = dict(drifts)
    for name, (window, load, ready) in steady.items():
        pools = [pool for pool in plan.allocations.get(name, ()) if pool.num_replicas and pool.itl_ms > 0]
        counts = window.counts
        is_calm = load.backlog_rps <= STEADY * load.offered_rps and not counts.rejected
        if len(pools) != 1 or list(ready) != [pools[0].accelerator] or not is_calm or counts.tokens <= 0:
            continue
        predicted_ms = _predicted_itl_ms(system, name, pools[0], ready[pools[0].accelerator], load)
        if predicted_ms is None:
            continue
        key = key_of(system.servers[name].model, pools[0].accelerator)
        memory = found.get(key, DriftMemory())
        share = min(1.0, max(0.0, now_s - memory.seen_s) / counts.span_s)
        measured_ms = MS_PER_S * counts.itl_s / counts.tokens
        found[key] = memory.after(measured_ms, predicted_ms, share * counts.tokens, now_s, settings)
    return found


def _predicted_itl_ms(system: System, name: str, pool: Pool, ready: int, load: EstimatedLoad) -> float | None:
    """Return the mean inter-token latency of ready replicas at the offered rate; None above their limit.

    A router that takes the least loaded of m replicas smooths the arrivals at each. Like round robin, it
    divides their squared coefficient of variation by m. A queue model that assumes 1 can predict 10 % more.
    """
    rate_rpm = load.offered_rps * SECONDS_PER_MINUTE
    if not 0 < rate_rpm <= pool.max_arrival_rate_rpm / pool.num_replicas * ready:
        return None
    there = pool.model_copy(update={"num_replicas": ready, "arrival_rate_rpm": rate_rpm})
    arrays = arrays_of(_smoothed(system, name, ready))
    ((_, _, performance),) = performances(arrays, *pool_rows(arrays, [(name, there)]))
    return float(performance.itl_ms[0])


def _smoothed(system: System, name: str, ready: int) -> System:
    """Return a system with the variation of arrivals behind a router, if the queue model uses it."""
    server = system.servers[name]
    load = server.current.load
    load = load.model_copy(update={"arrival_cv": load.arrival_cv / sqrt(ready)})
    try:
        check_variability(load, "", system.profiles_of(server.model))
    except SpecError:
        return system
    return replace(system, servers={**system.servers, name: server.with_load(load)})
