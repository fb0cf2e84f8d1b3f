"""Servers that take turns on a card: their queue model, and the maximum rates that meet all targets.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.kinds.table import kind_of_profile
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.performance import MS_PER_S
from optimizer.queueing.targets import CARD_MISS_TOLERANCE
from optimizer.simulation.batches import BatchServer
from optimizer.spec.system import System

LOWER_RATES = (0.5, 0.2, 0.05, 0.01)
"""Fractions of a server's rate at which its targets are also checked if it has a batching window."""
MARGIN = 1.25
"""Safety factor on percentiles, because their error is larger than that of means."""
MAX_KNOWN = 4096
"""Maximum number of combinations of servers whose rates are cached."""
SAFETY = (1e-6, 1e-4, 1e-3, 1e-2)
"""Relative margins below the maximum rates, tried until all targets are met.

Close to saturation the queue model is inexact, so that the first can be too small.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A server that shares a card in time, with its targets."""

    server: BatchServer
    limits: Mapping[TargetMeasure, float]
    """Limits on the server's latency measures, minus the network latency [ms]."""
    delay_ms: float


@dataclass(frozen=True, slots=True)
class TurnMetrics:
    """Performance of a server that shares a card in time."""

    fields: dict[str, Any]
    """Metrics of the server's pool, by Python field name; token metrics are 0."""
    targets: Mapping[TargetMeasure, tuple[float, float]]
    """Value and limit of each target measure [ms], without the safety factor on percentiles."""


def turn_of(system: System, arrays: SystemArrays, name: str, accelerator: int, max_batch: int) -> Turn | None:
    """Return a server as a `Turn` on a card; None if it cannot share one in time.

    Args:
        system: the auxiliary system, in which parts of cards are accelerators.
        arrays: the same system as arrays.
        name: name of the server.
        accelerator: index of the card.
        max_batch: batch limit.
    """
    server, s = system.servers[name], arrays.server_names.index(name)
    profile = system.profiles[server.model, arrays.accelerator_names[accelerator]]
    turn = kind_of_profile(profile).takes_turns(server, profile, max_batch)
    if turn is None or server.current.load.arrival_cv != 1:
        return None
    delay_ms = float(arrays.servers.delay_ms[s, accelerator])
    limits = arrays.servers.targets.take(np.array([s])).before(np.array([delay_ms])).limits_of(0)
    limits.pop(LOSS, None)
    if any(measure.metric == "missed" for measure in limits):
        return None
    return Turn(turn, limits, delay_ms)


def largest_rates_rps(turns: Sequence[Turn], mix: FloatArray) -> FloatArray | None:
    """Return the largest rates in given proportions at which all targets are met [requests/s], or None.

    The targets are also met at lower rates; for servers with a batching window this is checked.

    Args:
        turns: the servers of a card.
        mix: proportions of their rates, shape (S,).
    """
    limits = tuple(tuple(turn.limits.items()) for turn in turns)
    result = _largest_rates_rps(tuple(turn.server for turn in turns), limits, tuple(mix.tolist()))
    return None if result is None else np.array(result)


@lru_cache(maxsize=MAX_KNOWN)
def _largest_rates_rps(
    servers: tuple[BatchServer, ...],
    limits_of: tuple[tuple[tuple[TargetMeasure, float], ...], ...],
    proportions: tuple[float, ...],
) -> tuple[float, ...] | None:
    """Return the largest rates [requests/s] for hashable values; cached, as what-if questions repeat them."""
    from optimizer.queueing.bulk.time_sharing import meeting_share, shared_steady_states

    limits, mix = [dict(of_server) for of_server in limits_of], np.array(proportions)
    share = meeting_share(servers, mix / mix.sum() / MS_PER_S, limits)
    if share is None:
        return None
    for margin in SAFETY:
        rates: FloatArray = mix / mix.sum() * share * (1 - margin)
        states = shared_steady_states(servers, rates / MS_PER_S)
        excess = max(state.excess(of_server) for state, of_server in zip(states, limits, strict=True))
        if excess <= CARD_MISS_TOLERANCE:
            break
    else:
        return None
    for k, server in enumerate(servers):
        for lower in LOWER_RATES if server.window_ms else ():
            tried = rates / MS_PER_S
            tried[k] *= lower
            if shared_steady_states(servers, tried)[k].excess(limits[k]) > 0:
                return None
    return tuple(rates.tolist())


def measure_turns(turns: Sequence[Turn], rates_rps: FloatArray) -> list[TurnMetrics]:
    """Return the performance of servers that share a card in time, at rates > 0 [requests/s], shape (S,).

    Raises:
        AnalysisError: a queue grows without bound.
    """
    from optimizer.queueing.bulk.time_sharing import shared_steady_states

    states = shared_steady_states([turn.server for turn in turns], rates_rps / MS_PER_S)
    turn_metrics = []
    for turn, state, rate in zip(turns, states, rates_rps.tolist(), strict=True):
        batch = state.alone.mean_batch
        own_ms = turn.server.base_ms + turn.server.slope_ms * batch
        fields = {
            "itl_ms": 0.0,
            "ttft_ms": state.mean_ms + turn.delay_ms,
            "wait_ms": max(state.mean_ms - own_ms, 0.0),
            "utilization": state.fill,  # mean arrivals during a cycle of full batches by the limit (eq. 206)
            "loss": 0.0,
            "busy": rate / MS_PER_S * own_ms / batch,
            "mean_batch": batch,
            "batch_window_ms": turn.server.window_ms,
        }
        values = {
            measure: state.mean_ms
            if measure.percentile is None
            else state.quantile_ms(measure.percentile / 100)
            for measure in turn.limits
        }
        targets = {
            measure: (value + turn.delay_ms, turn.limits[measure] + turn.delay_ms)
            for measure, value in values.items()
        }
        turn_metrics.append(TurnMetrics(fields, targets))
    return turn_metrics
