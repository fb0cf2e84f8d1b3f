"""Replicas to simulate, and runs of one replica under a load."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.errors import AnalysisError
from optimizer.simulation.engine import SimulatedRun, simulate
from optimizer.simulation.law import Coefficients, StaticCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.live.replica import LiveReplica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.tandem import Tandem
from optimizer.simulation.workload import Load

DEFAULT_REQUESTS = 20_000
DEFAULT_SEED = 1
MAX_REQUESTS = 10_000_000
"""Maximum number of requests in a run, which need one or two gigabytes of memory."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Amount of simulation, and the random seed."""

    requests: int = DEFAULT_REQUESTS
    """Number of requests per run."""
    runs: int = 1
    """Number of independent runs; the confidence interval of a single run uses batch means."""
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        if not MIN_REQUESTS <= self.requests <= MAX_REQUESTS:
            raise AnalysisError(
                f"requests: must be {MIN_REQUESTS} or more and at most {MAX_REQUESTS}, not {self.requests}"
            )
        if self.runs < 1:
            raise AnalysisError(f"runs: must be 1 or more, not {self.runs}")
        if self.seed < 0:
            raise AnalysisError(f"seed: must be 0 or more, not {self.seed}")


class SimulatedReplica(ABC):
    """A replica to simulate, with the state machine that runs it."""

    def with_chances(self, requests: Requests, seed: np.random.SeedSequence) -> Requests:  # noqa: ARG002
        """Draw random quantities that the load does not draw, from unused streams of `seed`."""
        return requests

    @abstractmethod
    def run(self, requests: Requests) -> SimulatedRun:
        """Run requests through the empty replica until all have completed.

        Raises:
            AnalysisError: an iteration would take no time, or an output is too long.
        """

    def live(self, levels: int, rng: np.random.Generator) -> LiveReplica:  # noqa: ARG002
        """Return an empty live replica, whose caller advances the time.

        Args:
            levels: number of priorities; only replicas with tokens distinguish them.
            rng: random generator for service times.

        Raises:
            AnalysisError: this kind of replica cannot run live.
        """
        raise AnalysisError("this replica can only be simulated as an entire run, not step by step")


@dataclass(frozen=True, slots=True)
class TokenReplica(SimulatedReplica):
    """A replica that computes iterations, or that shares its time among all requests."""

    times: Coefficients
    limits: Limits

    def run(self, requests: Requests) -> SimulatedRun:
        """Run requests through the engine."""
        return simulate(requests, self.times, self.limits)

    def live(self, levels: int, rng: np.random.Generator) -> LiveReplica:  # noqa: ARG002
        """Return an empty live replica with iterations or processor sharing."""
        from optimizer.simulation.live.tokens import LiveTokens

        return LiveTokens(self.times, self.limits, levels)


@dataclass(frozen=True, slots=True)
class StaticReplica(SimulatedReplica):
    """A replica with static batching."""

    times: StaticCoefficients
    limits: Limits

    def run(self, requests: Requests) -> SimulatedRun:
        """Run requests through the replica in consecutive batches."""
        from optimizer.simulation.machine.statics import empty_line, run_static_batches

        assert requests.arrival_ms is not None
        in_tokens, out_tokens = np.array(requests.in_tokens), np.array(requests.out_tokens)
        line = empty_line(np.array(requests.arrival_ms), in_tokens, out_tokens, len(requests))
        run_static_batches(self.times, self.limits.max_batch, self.limits.max_queue, line)
        state = line.states[0]
        record = float(state["busy_ms"]), float(state["batch_ms"]), int(state["batches"])
        return batches_run(requests, line.first_ms, line.last_ms, *record)

    def live(self, levels: int, rng: np.random.Generator) -> LiveReplica:  # noqa: ARG002
        """Return an empty live replica with static batching."""
        from optimizer.simulation.live.statics import LiveStatics

        return LiveStatics(self.times, self.limits)


@dataclass(frozen=True, slots=True)
class LineReplica(SimulatedReplica):
    """A dynamic-batching server with its stages; each request makes one token, at its end."""

    line: Tandem

    def with_chances(self, requests: Requests, seed: np.random.SeedSequence) -> Requests:
        """Add random service times at the stages to requests."""
        from optimizer.simulation.machine.passing import stage_times_ms

        (own,) = seed.spawn(1)
        times = stage_times_ms(self.line.stations, len(requests), np.random.default_rng(own))
        return replace(requests, stage_ms=frozen(times))

    def run(self, requests: Requests) -> SimulatedRun:
        """Run requests through the tandem."""
        from optimizer.simulation.machine.passing import run_line

        assert requests.arrival_ms is not None
        assert requests.stage_ms is not None
        start_ms, last_ms = np.empty(len(requests)), np.empty(len(requests))
        record = run_line(self.line, np.array(requests.arrival_ms), requests.stage_ms, start_ms, last_ms)
        return batches_run(requests, last_ms, last_ms, *record)

    def live(self, levels: int, rng: np.random.Generator) -> LiveReplica:  # noqa: ARG002
        """Return an empty live server with stages and random service times."""
        from optimizer.simulation.live.lines import live_line

        return live_line(self.line, rng)


def batches_run(
    requests: Requests,
    first_ms: FloatArray,
    last_ms: FloatArray,
    busy_ms: float,
    batch_ms: float,
    batches: int,
) -> SimulatedRun:
    """Return the results of a replica that has no clients and no memory limits.

    Args:
        first_ms: times of the first tokens, NaN if rejected.
        last_ms: times of the last tokens, NaN if rejected.
        busy_ms: busy time.
        batch_ms: integral of the batch over time.
        batches: number of batches.
    """
    assert requests.arrival_ms is not None
    return SimulatedRun(
        requests=requests,
        sent_ms=frozen(np.array(requests.arrival_ms)),
        first_ms=frozen(first_ms),
        last_ms=frozen(last_ms),
        client_ms=frozen(np.zeros(len(requests))),
        preemptions=frozen(np.zeros(len(requests), np.int64)),
        busy_ms=busy_ms,
        batch_ms=batch_ms,
        iterations=batches,
    )


def run_replica(load: Load, replica: SimulatedReplica, effort: Effort, stream: int = 0) -> list[SimulatedRun]:
    """Run one replica under a load, and return the results of each run.

    Args:
        load: arrivals and lengths.
        effort: number of requests and runs, and the seed.
        stream: index of the replica under the same seed; each index has its own random stream.

    Raises:
        AnalysisError: an iteration would take no time, or a trace has too few requests.
    """
    seeds = np.random.SeedSequence(effort.seed, spawn_key=(stream,)).spawn(effort.runs)
    drawn = [replica.with_chances(load.draw(effort.requests, seed), seed) for seed in seeds]
    fewest = min(map(len, drawn))
    if fewest < MIN_REQUESTS:
        raise AnalysisError(
            f"{fewest} of the recorded requests reach a replica, and percentiles need {MIN_REQUESTS}; "
            "record for longer"
        )
    return [replica.run(requests) for requests in drawn]
