"""Drift of profiles: differences between measured token times and those that the profile predicts.

The mean inter-token latency of a window is compared with the prediction of the queue model for the ready
replicas at the offered rate, if the server is in a steady state. So is the mean TTFT, if hardly any of it is
predicted to be queueing time. If the average over some minutes exceeds a limit, an alarm is raised, and
factors for the parameters of the profile are proposed.

The factors are a least-squares fit of the logarithms of measured over predicted times, based on the
sensitivity of the predictions to each parameter. Parameters that affect none of the compared times stay
unchanged. The others change together, unless different loads separate them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt

import numpy as np

from optimizer.candidates.caution import Time, times_of, with_scaled_times
from optimizer.candidates.measuring import performances
from optimizer.candidates.pairs import arrays_of
from optimizer.plan import Plan, Pool
from optimizer.plan.rows import pool_pairs
from optimizer.queueing.performance import MS_PER_S
from optimizer.schema import ModelProfile
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.config import DriftSettings, LoopConfig
from rest_server.loop.loads import EstimatedLoad, uses_variability
from rest_server.loop.window import Window

MIN_TOKENS = 1000.0
"""Minimum number of recent tokens for an alarm."""
MIN_REQUESTS = 30.0
"""Minimum number of recent TTFTs for an alarm."""
TTFT_LIMITS = 2.0
"""Limit on the difference of TTFTs divided by that of token times; it is larger because routers affect TTFTs.
"""
MAX_STEP = 1.25
"""Maximum factor of one refit on a parameter."""
MAX_FACTOR = 4.0
"""Maximum factor of all refits together on a parameter."""
STEADY_S = 4.5
"""Maximum time in which the waiting requests arrive at which a server counts as in a steady state [s]."""
MAX_WAIT = 0.2
"""Maximum predicted fraction of queueing time in a TTFT that is compared, because queueing depends on the
router.
"""
MAX_UTILISATION = 0.9
"""Maximum predicted fraction of the batch limit in use; above it, replicas are hardly ever in a steady state.
"""
INFORMED = 0.05
"""Minimum root mean square of the sensitivities to a parameter, so that a refit changes the parameter."""
TOGETHER = 0.01
"""Weight of the differences between a refit's factors, relative to the squared errors of the fit."""
STEP = 0.02
"""Relative change of a parameter with which sensitivities are computed."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """A measured time compared with its prediction."""

    log_ratio: float
    """Logarithm of the measured time divided by the predicted time."""
    sensitivities: Mapping[str, float]
    """Derivatives of the prediction's logarithm with respect to the logarithms of the parameters, by
    parameter.
    """


@dataclass(frozen=True, slots=True)
class RefitMemory:
    """Normal equations for the factors of a profile; older comparisons have less weight."""

    parameters: tuple[str, ...] = ()
    seconds: float = 0.0
    """Sum of the weights, which is the weighted time of the comparisons [s]."""
    matrix: tuple[Vector, ...] = ()
    """Weighted sum of products of sensitivities, shape (P, P)."""
    vector: Vector = ()
    """Weighted sum of products of sensitivities and logarithms of ratios, shape (P,)."""

    def after(self, time_ratio: TimeRatio, kept: float, seconds: float) -> "RefitMemory":
        """Return the equations with a comparison added.

        Args:
            time_ratio: the comparison.
            kept: factor on the weight of earlier comparisons.
            seconds: weight of this comparison [s].
        """
        names = tuple(time_ratio.sensitivities)
        known = self if self.parameters == names else RefitMemory()
        slopes = np.array(list(time_ratio.sensitivities.values()))
        count = len(names)
        matrix = kept * np.array(known.matrix or np.zeros((count, count)))
        vector = kept * np.array(known.vector or np.zeros(count))
        matrix += seconds * np.outer(slopes, slopes)
        vector += seconds * slopes * time_ratio.log_ratio
        rows = tuple(map(tuple, matrix.tolist()))
        return RefitMemory(names, kept * known.seconds + seconds, rows, tuple(vector.tolist()))

    @property
    def factors(self) -> dict[str, float]:
        """Factors for the parameters on which the comparisons are informative, each limited to one step."""
        if not self.seconds:
            return {}
        matrix, vector = np.array(self.matrix), np.array(self.vector)
        informed = np.flatnonzero(np.sqrt(np.diag(matrix) / self.seconds) >= INFORMED)
        if not len(informed):
            return {}
        centring = np.eye(len(informed)) - 1 / len(informed)
        chosen = matrix[np.ix_(informed, informed)] + TOGETHER * self.seconds * centring
        logs = np.linalg.lstsq(chosen, vector[informed], rcond=None)[0]
        limited = np.exp(np.clip(logs, -log(MAX_STEP), log(MAX_STEP)))
        return {self.parameters[i]: float(factor) for i, factor in zip(informed, limited, strict=True)}


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """Recent comparisons of measured token times with a profile."""

    seen_s: float = 0.0
    tokens: float = 0.0
    """Number of recent tokens; older tokens have less weight."""
    sum_log: float = 0.0
    """Sum over recent tokens of the logarithm of measured over predicted time."""
    requests: float = 0.0
    """Number of recent requests whose TTFT was compared; older ones have less weight."""
    sum_log_ttft: float = 0.0
    """Sum over recent requests of the logarithm of measured over predicted TTFT."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Factors by which parameters are currently multiplied."""
    refit: RefitMemory = RefitMemory()
    alarm: bool = False

    @property
    def ratio(self) -> float | None:
        """Measured divided by predicted token time; None if unknown."""
        return exp(self.sum_log / self.tokens) if self.tokens >= MIN_TOKENS else None

    @property
    def ttft_ratio(self) -> float | None:
        """Measured divided by predicted TTFT; None if it was not compared."""
        return exp(self.sum_log_ttft / self.requests) if self.requests >= MIN_REQUESTS else None

    @property
    def proposal(self) -> dict[str, float] | None:
        """Factors by which parameters should be multiplied; None without an alarm."""
        return self.refit.factors if self.alarm else None

    def after(
        self,
        itl: TimeRatio,
        ttft: TimeRatio | None,
        counted: tuple[float, float, float],
        now_s: float,
        settings: DriftSettings,
    ) -> "DriftMemory":
        """Return the memory with the comparisons of a window added.

        Args:
            itl: comparison of the mean inter-token latency.
            ttft: comparison of the mean TTFT; None if it is not compared.
            counted: number of new tokens, number of new requests, and length of the window [s].
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
        drift_memory = replace(
            self,
            seen_s=now_s,
            tokens=kept * self.tokens + tokens,
            sum_log=kept * self.sum_log + tokens * itl.log_ratio,
            refit=refit,
            requests=count,
            sum_log_ttft=total,
        )
        limit = settings.limit / 2 if self.alarm else settings.limit  # an alarm ends well below its limit
        drift_memory = replace(
            drift_memory,
            alarm=_beyond(drift_memory.ratio, limit) or _beyond(drift_memory.ttft_ratio, TTFT_LIMITS * limit),
        )
        if not drift_memory.proposal or settings.refit != "apply":
            return drift_memory
        return DriftMemory(now_s, factors=_product(self.factors, drift_memory.proposal))


def _beyond(ratio: float | None, limit: float) -> bool:
    return ratio is not None and abs(log(ratio)) > log(1 + limit)


def _product(factors: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return the products of factors by parameter name, limited to `MAX_FACTOR`."""
    product = {name: factors.get(name, 1.0) * more.get(name, 1.0) for name in {**factors, **more}}
    return {name: min(MAX_FACTOR, max(1 / MAX_FACTOR, value)) for name, value in product.items()}


Drifts = Mapping[str, DriftMemory]
"""Comparisons by profile, with keys such as ``model/accelerator``."""
DRIFTED, REFITTED = "ProfileDrift", "ProfileRefit"
"""Reasons of the Events for a drift and for a refit."""


def events_between(before: Drifts, after: Drifts) -> Iterator[tuple[str, str, str]]:
    """Yield the profile, the reason and the message of each new alarm and each refit."""
    for key, memory in after.items():
        old = before.get(key, DriftMemory())
        if memory.alarm and not old.alarm:
            ratios = {"token time": memory.ratio, "TTFT": memory.ttft_ratio}
            stated = ", ".join(f"{name} × {ratio:.2f}" for name, ratio in ratios.items() if ratio is not None)
            yield key, DRIFTED, f"{key}: {stated} of the profile's; {_changes(memory.refit.factors)}"
        if memory.factors != old.factors:
            yield key, REFITTED, f"{key}: plans use {_changes(memory.factors)}"


def _changes(factors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} × {factor:.2f}" for name, factor in factors.items()) or "no refit"


def with_factors(system: System, drifts: Drifts) -> System:
    """Return a copy of a system whose token times are multiplied by the factors of applied refits."""
    factors = {key: found.factors for key, found in drifts.items() if found.factors}
    if not factors:
        return system
    changed = (
        retimed(profile, factors.get(key_of(model, on), {}))
        for (model, on), profile in system.profiles.items()
    )
    return system.with_items(*changed)


def key_of(model: str, accelerator: str) -> str:
    """Return the key of a profile: ``model/accelerator``."""
    return f"{model}/{accelerator}"


def named_times(profile: ModelProfile) -> dict[str, Time]:
    """Return the times of a profile that are not zero, by their names in documents."""
    times = {}
    for part, parameter in times_of(profile):
        parms = getattr(profile, part)
        if getattr(parms, parameter):
            names = [
                type(item).model_fields[name].alias or name
                for item, name in ((profile, part), (parms, parameter))
            ]
            times[".".join(names)] = part, parameter
    return times


def retimed(profile: ModelProfile, factors: Mapping[str, float]) -> ModelProfile:
    """Return a copy of a profile with some times, given by their names in documents, multiplied."""
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
    config: LoopConfig,
) -> dict[str, DriftMemory]:
    """Return the comparisons with the windows of servers in a steady state added.

    Args:
        drifts: the comparisons so far.
        system: the planned system.
        steady: servers whose replicas have not changed during the window: measurements, load, and ready
            replicas by accelerator.
        now_s: time [s since the epoch].
        config: configuration of the loop, with the routing, the limit and the time constant.
    """
    drift_memories = dict(drifts)
    for name, (window, load, ready) in steady.items():
        pools = [pool for pool in plan.allocations.get(name, ()) if pool.num_replicas and pool.itl_ms > 0]
        counts = window.counts
        is_calm = load.waiting <= STEADY_S * load.offered_rps and not counts.rejected
        if len(pools) != 1 or list(ready) != [pools[0].accelerator] or not is_calm or counts.tokens <= 0:
            continue
        is_random = config.is_routed_at_random(name)
        there = pools[0], ready[pools[0].accelerator]
        predicted = _Prediction.of(system, name, there, load, is_random=is_random)
        if predicted is None:
            continue
        key = key_of(system.servers[name].model, pools[0].accelerator)
        memory = drift_memories.get(key, DriftMemory())
        share = min(1.0, max(0.0, now_s - memory.seen_s) / counts.span_s)
        itl = predicted.against("itl_ms", MS_PER_S * counts.itl_s / counts.tokens)
        ttft = None
        if predicted.hardly_waits and counts.first_tokens >= 1 and counts.ttft_s > 0:
            ttft = predicted.against("ttft_ms", MS_PER_S * counts.ttft_s / counts.first_tokens)
        counted = share * counts.tokens, share * counts.first_tokens, share * counts.span_s
        drift_memories[key] = memory.after(itl, ttft, counted, now_s, config.drift)
    return drift_memories


PREDICTED = ("itl_ms", "ttft_ms", "wait_ms", "response_ms", "utilization")
"""Fields of a replica's performance that comparisons use."""


@dataclass(frozen=True, slots=True)
class _Prediction:
    """Mean times [ms] and utilisation of ready replicas at the offered rate, also with larger parameters."""

    times: Mapping[str, float]
    """Predicted values by field of a replica's performance."""
    stepped: Mapping[str, Mapping[str, float]]
    """Values predicted with one parameter increased by a step, by parameter and field."""

    @classmethod
    def of(
        cls,
        system: System,
        name: str,
        replicas: tuple[Pool, int],
        load: EstimatedLoad,
        *,
        is_random: bool,
    ) -> "_Prediction | None":
        """Return the prediction.

        None above the maximum rate of the replicas, or above the maximum utilisation.

        A router that chooses the least loaded of m replicas smooths the arrivals at each replica. Like round
        robin, it divides their squared coefficient of variation by m. A queue model that assumes 1 can
        predict 10 % too much.

        Args:
            system: the system.
            name: the server.
            replicas: its pool, and the number of ready replicas.
            load: its load.
            is_random: whether requests are routed at random instead.
        """
        pool, ready = replicas
        rate_rpm = load.offered_rps * SECONDS_PER_MINUTE
        if not 0 < rate_rpm <= pool.max_arrival_rate_rpm / pool.num_replicas * ready:
            return None
        there = pool.model_copy(update={"num_replicas": ready, "arrival_rate_rpm": rate_rpm})
        server = system.servers[name]
        load_there = server.current.load
        smooth = load_there.model_copy(
            update={"arrival_cv": load_there.arrival_cv / sqrt(1 if is_random else ready)}
        )
        if uses_variability(system, server.model, smooth):
            server = server.with_load(smooth)
        profile = system.profiles[server.model, pool.accelerator]
        alone = replace(system, servers={name: server})

        def times(changed: ModelProfile) -> dict[str, float]:
            profiles = {**alone.profiles, (server.model, pool.accelerator): changed}
            arrays = arrays_of(replace(alone, profiles=profiles))
            ((_, _, performance),) = performances(arrays, *pool_pairs(arrays, [(name, there)]))
            found = {field: float(getattr(performance, field)[0]) for field in PREDICTED}
            steps = server.current.load.out_tokens - 1
            if steps > 0:  # metrics weigh each interval alike; plans weigh each request alike
                found["itl_ms"] = (found["response_ms"] - found["ttft_ms"]) / steps
            return found

        plain = times(profile)
        if plain["utilization"] > MAX_UTILISATION:
            return None
        return cls(plain, {name: times(retimed(profile, {name: 1 + STEP})) for name in named_times(profile)})

    @property
    def hardly_waits(self) -> bool:
        """Whether the TTFT hardly depends on queueing, and so on the router."""
        return self.times["wait_ms"] <= MAX_WAIT * self.times["ttft_ms"]

    def against(self, field: str, measured_ms: float) -> TimeRatio:
        """Return the comparison of a measured mean [ms] with the predicted value of a field."""
        predicted_ms = self.times[field]
        slopes = {
            name: log(times[field] / predicted_ms) / log(1 + STEP) for name, times in self.stepped.items()
        }
        return TimeRatio(log(measured_ms / predicted_ms), slopes)
