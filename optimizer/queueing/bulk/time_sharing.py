"""Approximate steady state of batch servers that share a card in time, one batch at a time.

Whether there is a steady state follows from a cycle in which every server has one turn, not from the
utilisation, because small batches take the same base time as full ones. docs/math.md has the equations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import AnalysisError
from optimizer.queueing.bulk.steady import ServerSteadyState, server_steady_state
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.roots import root_above
from optimizer.simulation.batches import BatchServer

MAX_FILL = 0.999
"""Maximum mean arrivals in a cycle, as a share of the batch limit, for which results are computed."""
BACKLOG_POWER = 4
"""Exponent that controls how the delay of a full batch approaches that of a full cycle near instability."""
ROUNDS, UNDAMPED = 200, 20
PRECISION = 1e-9
CYCLE_PRECISION = 1e-13
CYCLE_ROUNDS = 100_000
SHARES = 0.7 ** np.arange(20)
"""Factors on the maximum stable rates that sizing tries, descending."""
MARGIN = 1.25
"""Safety factor on percentiles in sizing, because no simulation checks the targets."""


@dataclass(frozen=True, slots=True)
class SharedSteadyState:
    """Steady state of one of the servers that share a card."""

    alone: ServerSteadyState
    """Steady state of the server alone, with the delays by other servers included in its service time."""
    fill: float
    """Mean arrivals in a cycle of turns, as a share of the batch limit; a steady state requires less than 1.
    """
    blocked: FloatArray
    """Share of time in which the card serves each of the other servers, shape (S − 1,)."""
    turns_ms: FloatArray
    """Mean time of a turn of each of the other servers [ms], shape (S − 1,)."""

    @property
    def mean_ms(self) -> float:
        """Mean latency [ms]."""
        return self.alone.mean_ms

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of requests does not exceed [ms].

        It is the quantile of the server alone plus half a turn of other servers for requests that they delay.
        """
        in_the_way = np.maximum(1 - (1 - share) / np.maximum(self.blocked, 1e-300), 0.0)
        return self.alone.quantile_ms(share) + float((in_the_way * self.turns_ms).sum()) / 2

    def excess(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return the largest relative excess over a latency target; ≤ 0 if all are met with a margin."""
        return max((self._figure_ms(measure) / limit - 1 for measure, limit in limits.items()), default=-1.0)

    def _figure_ms(self, measure: TargetMeasure) -> float:
        if measure.percentile is None:
            return self.mean_ms
        return MARGIN * self.quantile_ms(measure.percentile / 100)


@dataclass(frozen=True, slots=True)
class _Servers:
    """Service times and batch limits of servers as arrays, shapes (S,)."""

    size: FloatArray
    base_ms: FloatArray
    slope_ms: FloatArray

    @classmethod
    def of(cls, servers: Sequence[BatchServer]) -> Self:
        return cls(*(np.array([float(one[i]) for one in servers]) for i in (0, 2, 3)))

    def turn_ms(self, batch: FloatArray) -> FloatArray:
        """Return the service time of a batch of each server [ms]."""
        return self.base_ms + self.slope_ms * batch


def cycles_ms(servers: Sequence[BatchServer], rates: FloatArray) -> FloatArray:
    """Return the time between turns of each server if its queue is never empty [ms], shape (S,).

    Args:
        rates: arrival rate of each server [1/ms].
    """
    all_of, others = _Servers.of(servers), ~np.eye(len(servers), dtype=np.bool_)
    full_ms = all_of.turn_ms(all_of.size)
    cycle_ms = full_ms
    for _ in range(CYCLE_ROUNDS):
        come = rates * cycle_ms[:, np.newaxis]  # requests of server j (column) in a cycle of server k (row)
        turns = all_of.base_ms * -np.expm1(-come) + all_of.slope_ms * np.minimum(come, all_of.size)
        longer = full_ms + (turns * others).sum(axis=1)
        if (longer - cycle_ms <= CYCLE_PRECISION * longer).all():
            return longer
        cycle_ms = longer
    return cycle_ms


def fills(servers: Sequence[BatchServer], rates: FloatArray) -> FloatArray:
    """Return the mean arrivals in a cycle of each server as a share of its batch limit, shape (S,)."""
    return rates * cycles_ms(servers, rates) / _Servers.of(servers).size


def largest_share(servers: Sequence[BatchServer], rates: FloatArray) -> float:
    """Return the largest factor on all rates at which the card has a steady state."""
    alone = min(one.full_rate / rate for one, rate in zip(servers, rates.tolist(), strict=True))
    return root_above(
        lambda share: MAX_FILL - float(fills(servers, share * rates).max()), 0.0, alone, PRECISION, PRECISION
    )


def meeting_share(
    servers: Sequence[BatchServer], rates: FloatArray, limits: Sequence[Mapping[TargetMeasure, float]]
) -> float | None:
    """Return the largest factor on all rates at which all servers meet their latency targets, or None.

    Because of batching windows, targets can also be missed at low rates, so factors are tried in descending
    order.
    """

    def spare(share: float) -> float:
        states = shared_steady_states(servers, share * rates)
        return -max(state.excess(mine) for state, mine in zip(states, limits, strict=True))

    above = largest_share(servers, rates) * (1 - PRECISION)
    if spare(above) >= 0:
        return above
    for share in (above * SHARES[1:]).tolist():
        if spare(share) >= 0:
            return (1 - PRECISION) * root_above(spare, share, above, PRECISION)
        above = share
    return None


def shared_steady_states(servers: Sequence[BatchServer], rates: FloatArray) -> list[SharedSteadyState]:
    """Return the steady state of each of the servers that share a card.

    Args:
        servers: servers with trigger `oldest` and unlimited queues.
        rates: arrival rate of each server [1/ms], more than 0.

    Raises:
        AnalysisError: a queue grows without bound.
    """
    all_of, others = _Servers.of(servers), ~np.eye(len(servers), dtype=np.bool_)
    cycle_ms = cycles_ms(servers, rates)
    fill = rates * cycle_ms / all_of.size
    if fill.max() > MAX_FILL:
        raise AnalysisError("a queue grows without bound; lower the rates")
    # Fixed point over delays: a batch waits for the turns of other servers, which grow with their batches,
    # and these with their delays. It starts from full batches, and is damped if it oscillates.
    longest_ms = cycle_ms - all_of.turn_ms(all_of.size)
    delay_ms, batch = np.zeros(len(servers)), all_of.size
    for round_ in range(ROUNDS):
        full_ms = delay_ms + (longest_ms - delay_ms) * fill**BACKLOG_POWER
        states = [
            server_steady_state(_delayed(*one), rate)
            for *one, rate in zip(servers, delay_ms, full_ms, batch, rates.tolist(), strict=True)
        ]
        # The probability that a batch arrives within another server's turn is that server's share of time; it
        # then waits for half the turn.
        result = np.array([state.mean_batch for state in states])
        turn_ms = all_of.turn_ms(result)
        busy = rates * turn_ms / result
        by_others_ms = others @ (busy * (turn_ms + delay_ms)) / 2
        change_ms = np.minimum(by_others_ms, longest_ms) - delay_ms
        batch = result if round_ < UNDAMPED else (batch + result) / 2
        if np.abs(change_ms).max() <= PRECISION * turn_ms.max():
            break
        delay_ms = delay_ms + (change_ms if round_ < UNDAMPED else change_ms / 2)
    return [
        SharedSteadyState(state, float(fill[k]), np.minimum(busy[others[k]], 1.0), turn_ms[others[k]])
        for k, state in enumerate(states)
    ]


def _delayed(server: BatchServer, delay_ms: float, full_ms: float, batch: float) -> BatchServer:
    """Return the server with service times that include delays, which are affine in the batch size.

    Args:
        delay_ms: delay of a batch of mean size [ms].
        full_ms: delay of a full batch [ms].
        batch: mean batch size.
    """
    slope_ms = (full_ms - delay_ms) / (server.size - batch) if server.size - batch > PRECISION else 0.0
    slope_ms = min(max(slope_ms, 0.0), (server.base_ms + full_ms) / server.size)
    return server._replace(
        base_ms=float(server.base_ms + full_ms - slope_ms * server.size),
        slope_ms=float(server.slope_ms + slope_ms),
    )
