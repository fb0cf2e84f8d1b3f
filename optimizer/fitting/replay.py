"""A benchmark run on the engine: from an empty server, for as long as it took, counted as the client counts.

Chance is drawn once for a run and is the same for every law, so that two laws differ by their times alone.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.fitting.runs import Arrivals, BenchmarkRun
from optimizer.simulation.arrivals import POISSON_CV, arrival_times_ms
from optimizer.simulation.engine import advance, run_of
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import machine_of
from optimizer.simulation.requests import Requests

SEED = 42
MS_PER_S = 1000.0
LEAST_CLOSED = 1024
"""Requests drawn at first for a client that sends as fast as it may."""
MOST_REQUESTS = 4_000_000


class Figures(NamedTuple):
    """What a client counts; NaN where nothing was completed."""

    ttft_ms: float
    """Median time to the first token."""
    itl_ms: float
    """Time from first to last tokens over the tokens between, in sum."""
    throughput_rps: float
    """Completed over the duration."""
    completed: int
    ttft_percentiles: tuple[float, ...] = ()
    """By `PERCENTILES`."""
    itl_percentiles: tuple[float, ...] = ()
    in_flight: float = math.nan
    """Mean number on the way."""


PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Replay:
    """A run with its requests drawn."""

    run: BenchmarkRun
    requests: Requests
    limits: Limits
    span_ms: float

    @classmethod
    def of(cls, run: BenchmarkRun, limits: Limits, count: int | None = None) -> "Replay":
        """Draw the requests of a run with a duration.

        Args:
            run: what to replay.
            limits: those of the server; how many the client has in flight is the run's.
            count: requests to draw; none: as many as come, or enough to begin with.
        """
        assert run.duration_s is not None
        span_ms = run.duration_s * MS_PER_S
        wanted = _count(run) if count is None else count
        arrivals, prompts, answers = np.random.SeedSequence(SEED).spawn(3)
        requests = Requests(
            in_tokens=run.prompts.lengths(least=1).draw(wanted, np.random.default_rng(prompts)),
            out_tokens=run.answers.lengths(least=1).draw(wanted, np.random.default_rng(answers)),
            arrival_ms=_arrivals_ms(run, wanted, np.random.default_rng(arrivals)),
        )
        return cls(run, requests, limits._replace(max_in_flight=run.in_flight_limit), span_ms)

    def play(self, times: IterationCoefficients, *, detailed: bool = False) -> Figures:
        """Run it, and count the requests that end in time.

        Raises:
            AnalysisError: an iteration would take no time.
        """
        machine = machine_of(self.requests, self.limits)
        advance(machine, times, self.limits, self.span_ms)
        if self._ran_out(int(machine.state[0]["next_row"]), float(machine.state[0]["now_ms"])):
            return self._longer().play(times, detailed=detailed)
        run = run_of(machine, self.requests, times)
        ended = run.last_ms <= self.span_ms
        gaps = self.requests.out_tokens[ended] - 1
        ttft = run.ttft_ms[ended]
        spans = run.last_ms[ended] - run.first_ms[ended]
        found = Figures(
            ttft_ms=float(np.median(ttft)) if len(ttft) else math.nan,
            itl_ms=float(spans.sum() / gaps.sum()) if gaps.sum() > 0 else math.nan,
            throughput_rps=float(ended.sum() / self.span_ms * MS_PER_S),
            completed=int(ended.sum()),
        )
        if not detailed or not len(ttft):
            return found
        itl = run.itl_ms[ended]
        return found._replace(
            ttft_percentiles=_percentiles(ttft),
            itl_percentiles=_percentiles(itl[~np.isnan(itl)]),
            in_flight=float((run.e2e_ms[ended]).sum() / self.span_ms),
        )

    def _ran_out(self, sent: int, now_ms: float) -> bool:
        closed = self.run.arrivals is Arrivals.CLOSED and self.run.requests is None
        return closed and sent >= len(self.requests) and len(self.requests) < MOST_REQUESTS and now_ms > 0

    def _longer(self) -> "Replay":
        run = replace(self.run)
        return Replay.of(run, self.limits, min(4 * len(self.requests), MOST_REQUESTS))


def _count(run: BenchmarkRun) -> int:
    if run.arrivals is Arrivals.CLOSED:
        expected = (run.measured.throughput_rps or 0.0) * (run.duration_s or 0.0)
        count = max(LEAST_CLOSED, int(1.5 * expected) + 4 * (run.max_in_flight or 0))
    else:
        assert run.rate_rps is not None
        assert run.duration_s is not None
        count = max(int(run.rate_rps * run.duration_s * 1.2) + 10, 1)
    return min(count if run.requests is None else min(count, run.requests), MOST_REQUESTS)


def _arrivals_ms(run: BenchmarkRun, count: int, rng: np.random.Generator) -> FloatArray:
    if run.arrivals is Arrivals.CLOSED or run.rate_rps is None or run.rate_rps == math.inf:
        return np.zeros(count)
    cv = POISSON_CV if run.arrivals is Arrivals.POISSON else 0.0
    return arrival_times_ms(run.rate_rps, count, rng, cv)


def _percentiles(values: FloatArray) -> tuple[float, ...]:
    if not len(values):
        return ()
    return tuple(float(value) for value in np.percentile(values, PERCENTILES))
