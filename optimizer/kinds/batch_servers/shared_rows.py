"""Analysis of batch servers that share a card in time: one row (input line) for the card."""

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import FloatArray
from optimizer.documents import MIN_RATE, Document
from optimizer.errors import AnalysisError
from optimizer.kinds.batch_servers.rows import (
    NO_TOKENS,
    ONE_ANSWER,
    BatchLatencies,
    BatchRow,
    SimulatedBatches,
)
from optimizer.kinds.rows import OverloadedReplica, Row, UnstableReplica, simulated_answer
from optimizer.quantities import precise, quantity
from optimizer.queueing.bulk.time_sharing import (
    MAX_FILL,
    fills,
    largest_share,
    meeting_share,
    shared_steady_states,
)
from optimizer.queueing.performance import MS_PER_S
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.replicas import Effort
from optimizer.simulation.time_sharing import run_shared_card
from optimizer.simulation.workload import OpenLoad

MAX_SERVERS = 8
"""Maximum number of servers on a card; the accuracy was measured with 2 to 4."""
PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p999_ms": 99.9}
"""Latency percentiles by field name."""
_ALONE = ("trigger", "max_queue", "arrival_cv", "stages", "jobs")
"""Settings of a batch server that must have their default on a shared card."""


class SharedRow(Row):
    """Batch servers that share a card in time; it serves one batch at a time, in order of readiness."""

    shared: tuple[BatchRow, ...] = Field(strict=False, min_length=1, max_length=MAX_SERVERS)
    """Servers on the card, each with its arrival rate. Triggers must be `oldest`, arrivals Poisson and queues
    unlimited, without stages and jobs.
    """

    @model_validator(mode="after")
    def _can_be_analysed(self) -> "SharedRow":
        if "rate_rps" in self.model_fields_set:
            raise PydanticCustomError("shared", "RPS: the servers in shared give their rates; remove it")
        for i, row in enumerate(self.shared):
            for name in _ALONE:
                field = BatchRow.model_fields[name]
                if getattr(row, name) != field.default:
                    raise PydanticCustomError(
                        "shared",
                        "shared[{i}].{field}: not supported for a server that shares its card; remove it",
                        {"i": i, "field": field.alias or name},
                    )
        return self

    @property
    def max_batch(self) -> int:
        """Return the largest batch limit of the servers."""
        return max(row.max_batch for row in self.shared)

    def _card(self) -> tuple[list[BatchServer], FloatArray]:
        """Return the servers and their arrival rates [1/ms].

        Raises:
            AnalysisError: a rate is zero or almost zero.
        """
        for i, row in enumerate(self.shared):
            if row.rate_rps < MIN_RATE:
                raise AnalysisError(
                    f"shared[{i}].RPS: must be at least {MIN_RATE:g} requests/s, not {row.rate_rps:g}; "
                    "leave out servers without load"
                )
        rates = np.array([row.rate_rps for row in self.shared]) / MS_PER_S
        return [row.queues().server(0) for row in self.shared], rates

    def analyze(self) -> "SharedAnswer | UnstableReplica":
        """Return the latencies of each server, or `UnstableReplica` if a queue would grow forever.

        Raises:
            AnalysisError: a rate is zero or almost zero.
        """
        servers, rates = self._card()
        fill = fills(servers, rates)
        if fill.max() <= MAX_FILL:
            return _answer(servers, rates)
        worst = int(fill.argmax())
        offered_rps = float(rates.sum() * MS_PER_S)
        stable_rps = largest_share(servers, rates) * offered_rps
        come = quantity(fill[worst] * servers[worst].size)
        return UnstableReplica(
            offered_rps=offered_rps,
            stable_rate_rps=stable_rps,
            message=(
                f"no steady state: {come} requests of shared[{worst}] come while every server has one turn, "
                f"and its batch takes {servers[worst].size}; with the same proportions, at most "
                f"{precise(stable_rps)} requests/s are stable"
            ),
        )

    def size(self) -> "SharedAnswer":
        """Return the performance at the largest rates in the row's proportions at which all targets are met.

        Percentiles must meet their targets with a margin of 25 %, because the model is approximate.

        Raises:
            AnalysisError: no rates meet the targets, or a rate is zero or almost zero.
        """
        servers, rates = self._card()
        limits = [{one.measure: one.limit_ms for one in row.latency} for row in self.shared]
        share = meeting_share(servers, rates, limits)
        if share is None:
            raise AnalysisError(
                "no rates in these proportions meet the targets with a margin of 25 % on percentiles; "
                "relax a target, or give a server its own card"
            )
        return _answer(servers, share * rates)

    def simulate(self, effort: Effort) -> "SharedSimulation | OverloadedReplica":
        """Simulate the card; return the latencies of each server, or `OverloadedReplica` if unstable."""
        servers, rates = self._card()
        loads = [OpenLoad(rate, NO_TOKENS, ONE_ANSWER) for rate in (rates * MS_PER_S).tolist()]
        simulation = []
        for i, runs in enumerate(run_shared_card(servers, loads, effort)):
            simulated = simulated_answer(SharedSimulated, runs, effort, f"shared[{i}]: ")
            if isinstance(simulated, OverloadedReplica):
                return simulated
            simulation.append(simulated)
        return SharedSimulation(shared=tuple(simulation), requests=effort.requests, seed=effort.seed)


class SharedFigures(BatchLatencies):
    """Latencies of a batch server that shares its card."""

    p999_ms: float = Field(alias="p999Latency")
    """99.9th percentile of the latency [ms]."""
    mean_batch: float = Field(alias="avgBatch")
    """Mean number of requests per batch."""
    fill: float
    """Mean arrivals while every server has one turn, divided by the batch limit; the queue is stable below 1.
    """


class SharedAnswer(Document):
    """Approximate performance of batch servers that share a card in time."""

    shared: tuple[SharedFigures, ...] = Field(strict=False)
    """Latencies of each server, in the order of the row."""
    offered_rps: float = Field(alias="offeredRPS")
    """Total arrival rate of all servers [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Maximum stable total rate of all servers in the same proportions [requests/s]."""
    utilization: float
    """Sum over servers of the arrival rate divided by the throughput with full batches; a sum below 1 does
    not imply stability.
    """


class SharedSimulated(SimulatedBatches):
    """Simulated latencies of one server on the card, with confidence intervals."""

    half_width: SimulatedBatches = Field(alias="halfWidth")
    """Half-width of the 95 % confidence interval of each metric."""


class SharedSimulation(Document):
    """Simulated performance of batch servers that share a card in time."""

    shared: tuple[SharedSimulated, ...] = Field(strict=False)
    """Simulated latencies of each server, in the order of the row."""
    requests: int
    """Number of simulated requests of all servers, increased if a server would get too few for percentiles;
    the first and last tenth are excluded from the statistics.
    """
    seed: int
    """Random seed of the simulation."""


def _answer(servers: list[BatchServer], rates: FloatArray) -> SharedAnswer:
    """Return the performance of the card's servers at stable arrival rates [1/ms]."""
    figures = tuple(
        SharedFigures(
            mean_ms=state.mean_ms,
            **{name: state.quantile_ms(percent / 100) for name, percent in PERCENTILES.items()},
            mean_batch=state.alone.mean_batch,
            fill=state.fill,
        )
        for state in shared_steady_states(servers, rates)
    )
    offered_rps = float(rates.sum() * MS_PER_S)
    return SharedAnswer(
        shared=figures,
        offered_rps=offered_rps,
        stable_rate_rps=largest_share(servers, rates) * offered_rps,
        utilization=sum(rate / one.full_rate for one, rate in zip(servers, rates.tolist(), strict=True)),
    )
