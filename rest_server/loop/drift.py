"""Drift of profiles: measured token times against those of the profile at the measured load.

The mean inter-token latency of a window is compared with the prediction of the queue model for the ready
replicas at the offered rate, if the server is in a steady state, and so is the mean TTFT if hardly any of it
is predicted to be waiting. An average over some minutes beyond a limit is an alarm, and proposes factors for
the parameters of the profile.

The factors are a least-squares fit of the logarithms of measured over predicted times, by the sensitivities
of the predictions to each parameter. A parameter that changes none of the compared times stays. Others change
together, unless different loads separate them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt

import numpy as np

from optimizer.candidates.caution import Time, times_of, with_scaled_times
from optimizer.candidates.measuring import performances
from optimizer.candidates.pairs import arrays_of
from optimizer.errors import SpecError
from optimizer.plan import Plan, Pool
from optimizer.plan.rows import pool_rows
from optimizer.queueing.performance import MS_PER_S
from optimizer.schema import ModelProfile
from optimizer.schema.assumptions import check_variability
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.config import DriftSettings
from rest_server.loop.loads import EstimatedLoad
from rest_server.loop.window import Window

MIN_TOKENS = 1000.0
"""Minimum number of recent tokens behind an alarm."""
MIN_REQUESTS = 30.0
"""Minimum number of recent TTFTs behind an alarm."""
TTFT_LIMITS = 2.0
"""Limit on the difference of TTFTs, relative to that of token times; routers change TTFTs more."""
MAX_STEP = 1.25
"""Largest factor of one refit."""
MAX_FACTOR = 4.0
"""Largest factor of all refits."""
STEADY = 0.05
"""Maximum rate of the backlog, relative to the offered rate, of a steady state."""
MAX_WAIT = 0.2
"""Maximum predicted share of waiting in a TTFT that is compared, because waiting depends on the router."""
MAX_UTILISATION = 0.75
"""Maximum predicted share of the batch limit in use; beyond it queue models predict up to 10 % more."""
INFORMED = 0.05
"""Minimum root mean square of the sensitivities to a parameter that a refit changes."""
TOGETHER = 0.01
"""Weight of the differences between the factors of a refit, relative to the squared errors of its fit."""
STEP = 0.02
"""Relative change of a parameter by which sensitivities are found."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """A measured time against its prediction."""

    log_ratio: float
    """Logarithm of measured over predicted time."""
    sensitivities: Mapping[str, float]
    """Derivatives of the logarithm of the prediction by the logarithms of the parameters."""


@dataclass(frozen=True, slots=True)
class RefitMemory:
    """Normal equations of the fit of a profile's factors; older comparisons have less weight."""

    parameters: tuple[str, ...] = ()
    seconds: float = 0.0
    """Sum of the weights: time of the comparisons [s]."""
    matrix: tuple[Vector, ...] = ()
    """Sum of the products of sensitivities, shape (P, P)."""
    vector: Vector = ()
    """Sum of the products of sensitivities and logarithms of ratios, shape (P,)."""

    def after(self, found: TimeRatio, kept: float, seconds: float) -> "RefitMemory":
        """Return the memory with a comparison.

        Args:
            found: the comparison.
            kept: weight of the earlier ones.
            seconds: weight of this one.
        """
        names = tuple(found.sensitivities)
        known = self if self.parameters == names else RefitMemory()
        slopes = np.array(list(found.sensitivities.values()))
        count = len(names)
        matrix = kept * np.array(known.matrix or np.zeros((count, count)))
        vector = kept * np.array(known.vector or np.zeros(count))
        matrix += seconds * np.outer(slopes, slopes)
        vector += seconds * slopes * found.log_ratio
        rows = tuple(map(tuple, matrix.tolist()))
        return RefitMemory(names, kept * known.seconds + seconds, rows, tuple(vector.tolist()))

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the parameters that the comparisons inform, each by at most one step."""
        if not self.seconds:
            return {}
        matrix, vector = np.array(self.matrix), np.array(self.vector)
        informed = np.flatnonzero(np.sqrt(np.diag(matrix) / self.seconds) >= INFORMED)
        if not len(informed):
            return {}
        apart = np.eye(len(informed)) - 1 / len(informed)
        chosen = matrix[np.ix_(informed, informed)] + TOGETHER * self.seconds * apart
        logs = np.linalg.lstsq(chosen, vector[informed], rcond=None)[0]
        limited = np.exp(np.clip(logs, -log(MAX_STEP), log(MAX_STEP)))
        return {self.parameters[i]: float(factor) for i, factor in zip(informed, limited, strict=True)}


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """Recent comparisons of a profile's token times."""

    seen_s: float = 0.0
    tokens: float = 0.0
    """Recent tokens; older ones have less weight."""
    sum_log: float = 0.0
    """Sum over these tokens of the logarithm of measured over predicted time."""
    requests: float = 0.0
    """Recent requests whose TTFT was compared."""
    sum_log_ttft: float = 0.0
    """Sum over these requests of the logarithm of measured over predicted TTFT."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Applied factors of parameters."""
    refit: RefitMemory = RefitMemory()
    alarm: bool = False

    @property
    def ratio(self) -> float | None:
        """Measured over predicted token time; None if unknown."""
        return exp(self.sum_log / self.tokens) if self.tokens >= MIN_TOKENS else None

    @property
    def ttft_ratio(self) -> float | None:
        """Measured over predicted TTFT; None if it was not compared."""
        return exp(self.sum_log_ttft / self.requests) if self.requests >= MIN_REQUESTS else None

    @property
    def proposal(self) -> dict[str, float] | None:
        """Factors by which parameters should change; None without an alarm."""
        return self.refit.factors if self.alarm else None

    def after(
        self,
        itl: TimeRatio,
        ttft: TimeRatio | None,
        counted: tuple[float, float, float],
        now_s: float,
        settings: DriftSettings,
    ) -> "DriftMemory":
        """Return the memory with the comparisons of a window.

        Args:
            itl: the mean inter-token latency.
            ttft: the mean TTFT; None if it is not compared.
            counted: new tokens, new requests, and their time [s].
            now_s: time [s since the epoch].
            settings: limit and time constant.
        """
        kept = exp(-max(0.0, now_s - self.seen_s) / settings.span_s)
        tokens, requests, seconds = counted
        refit = self.refit.after(itl, kept, seconds)
        count, total = self.requests, self.sum_log_ttft
        if ttft is not None:
            refit = refit.after(ttft, 1.0, seconds)
            count, total = kept * count + requests, kept * total + requests * ttft.log_ratio
        found = replace(
            self,
            seen_s=now_s,
            tokens=kept * self.tokens + tokens,
            sum_log=kept * self.sum_log + tokens * itl.log_ratio,
            refit=refit,
            requests=count,
            sum_log_ttft=total,
        )
        limit = settings.limit / 2 if self.alarm else settings.limit  # an alarm ends well below its limit
        found = replace(
            found,
            alarm=_beyond(found.ratio, limit) or _beyond(found.ttft_ratio, TTFT_LIMITS * limit),
        )
        if not found.proposal or settings.refit != "apply":
            return found
        return DriftMemory(now_s, factors=_product(self.factors, found.proposal))


def _beyond(ratio: float | None, limit: float) -> bool:
    return ratio is not None and abs(log(ratio)) > log(1 + limit)


def _product(factors: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return the products of factors by name, limited."""
    found = {name: factors.get(name, 1.0) * more.get(name, 1.0) for name in {**factors, **more}}
    return {name: min(MAX_FACTOR, max(1 / MAX_FACTOR, value)) for name, value in found.items()}


Drifts = Mapping[str, DriftMemory]
"""Memories by profile: model and accelerator, with a slash between them."""
DRIFTED, REFITTED = "ProfileDrift", "ProfileRefit"
"""Reasons of events."""


def events_between(before: Drifts, after: Drifts) -> Iterator[tuple[str, str, str]]:
    """Yield profile, reason and message of each new alarm, and of each refit."""
    for key, found in after.items():
        old = before.get(key, DriftMemory())
        if found.alarm and not old.alarm:
            ratios = {"token time": found.ratio, "TTFT": found.ttft_ratio}
            stated = ", ".join(f"{name} × {ratio:.2f}" for name, ratio in ratios.items() if ratio is not None)
            yield key, DRIFTED, f"{key}: {stated} of the profile's; {_changes(found.refit.factors)}"
        if found.factors != old.factors:
            yield key, REFITTED, f"{key}: plans use {_changes(found.factors)}"


def _changes(factors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} × {factor:.2f}" for name, factor in factors.items()) or "no refit"


def with_factors(system: System, drifts: Drifts) -> System:
    """Return a system whose token times are multiplied by the factors of applied refits."""
    factors = {key: found.factors for key, found in drifts.items() if found.factors}
    if not factors:
        return system
    changed = {
        (model, on): retimed(profile, factors.get(key_of(model, on), {}))
        for (model, on), profile in system.profiles.items()
    }
    return replace(system, profiles=changed)


def key_of(model: str, accelerator: str) -> str:
    """Return the key of a profile."""
    return f"{model}/{accelerator}"


def named_times(profile: ModelProfile) -> dict[str, Time]:
    """Return the times of a profile that are not zero, by their names in documents."""
    found = {}
    for part, parameter in times_of(profile):
        parms = getattr(profile, part)
        if getattr(parms, parameter):
            names = [
                type(item).model_fields[name].alias or name
                for item, name in ((profile, part), (parms, parameter))
            ]
            found[".".join(names)] = part, parameter
    return found


def retimed(profile: ModelProfile, factors: Mapping[str, float]) -> ModelProfile:
    """Return a profile with some of its times multiplied, by their names in documents."""
    times = named_times(profile)
    return with_scaled_times(
        profile, {time: factors[name] for name, time in times.items() if name in factors}
    )


def with_windows(
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
        predicted = _Prediction.of(system, name, pools[0], ready[pools[0].accelerator], load)
        if predicted is None:
            continue
        key = key_of(system.servers[name].model, pools[0].accelerator)
        memory = found.get(key, DriftMemory())
        share = min(1.0, max(0.0, now_s - memory.seen_s) / counts.span_s)
        itl = predicted.against("itl_ms", MS_PER_S * counts.itl_s / counts.tokens)
        ttft = None
        if predicted.hardly_waits and counts.first_tokens >= 1 and counts.ttft_s > 0:
            ttft = predicted.against("ttft_ms", MS_PER_S * counts.ttft_s / counts.first_tokens)
        counted = share * counts.tokens, share * counts.first_tokens, share * counts.span_s
        found[key] = memory.after(itl, ttft, counted, now_s, settings)
    return found


PREDICTED = ("itl_ms", "ttft_ms", "wait_ms", "utilization")
"""Fields of a performance that are used."""


@dataclass(frozen=True, slots=True)
class _Prediction:
    """Mean times [ms] and utilisation of ready replicas at the offered rate, and with larger parameters."""

    times: Mapping[str, float]
    """By field of a performance."""
    stepped: Mapping[str, Mapping[str, float]]
    """The same by parameter that is a step larger."""

    @classmethod
    def of(
        cls, system: System, name: str, pool: Pool, ready: int, load: EstimatedLoad
    ) -> "_Prediction | None":
        """Return the prediction; None above the largest rate of the replicas, or the largest utilisation.

        A router that takes the least loaded of m replicas smooths the arrivals at each. Like round robin, it
        divides their squared coefficient of variation by m. A queue model that assumes 1 can predict 10 %
        more.
        """
        rate_rpm = load.offered_rps * SECONDS_PER_MINUTE
        if not 0 < rate_rpm <= pool.max_arrival_rate_rpm / pool.num_replicas * ready:
            return None
        there = pool.model_copy(update={"num_replicas": ready, "arrival_rate_rpm": rate_rpm})
        alone = _smoothed(system, name, ready)
        server = alone.servers[name]
        profile = system.profiles[server.model, pool.accelerator]
        alone = replace(alone, servers={name: server})

        def times(changed: ModelProfile) -> dict[str, float]:
            profiles = {**alone.profiles, (server.model, pool.accelerator): changed}
            arrays = arrays_of(replace(alone, profiles=profiles))
            ((_, _, performance),) = performances(arrays, *pool_rows(arrays, [(name, there)]))
            return {field: float(getattr(performance, field)[0]) for field in PREDICTED}

        plain = times(profile)
        if plain["utilization"] > MAX_UTILISATION:
            return None
        return cls(plain, {name: times(retimed(profile, {name: 1 + STEP})) for name in named_times(profile)})

    @property
    def hardly_waits(self) -> bool:
        """Whether the TTFT hardly depends on waiting, and so on the router."""
        return self.times["wait_ms"] <= MAX_WAIT * self.times["ttft_ms"]

    def against(self, field: str, measured_ms: float) -> TimeRatio:
        """Return the comparison of a measured mean."""
        predicted_ms = self.times[field]
        slopes = {
            name: log(times[field] / predicted_ms) / log(1 + STEP) for name, times in self.stepped.items()
        }
        return TimeRatio(log(measured_ms / predicted_ms), slopes)


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
