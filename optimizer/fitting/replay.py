"""A benchmark run on the engine: from an empty server, for as long as it took, counted as the client counts.

Chance is drawn once for a run and is the same for every law, so that two laws differ by their times alone.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.fitting.runs import Arrivals, BenchmarkRun
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.engine import Run, advance, run_of
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.machine.state import machine_of
from optimizer.simulation.requests import Requests

SEED = 42
MS_PER_S = 1000.0
LEAST_CLOSED = 1024
"""Requests drawn at first for a client that sends as fast as it may."""
MOST_REQUESTS = 4_000_000
FEW_LIVES = 4
"""Requests of each user from which the time between tokens is seen."""
FEW_REQUESTS = 1500
LIVES = 12
"""A shortened run is at least as long as so many requests one after the other."""


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
    """Infinity where the run ends with its last request."""

    @classmethod
    def of(cls, run: BenchmarkRun, limits: Limits, count: int | None = None) -> "Replay":
        """Draw the requests of a run that ends.

        Args:
            run: what to replay.
            limits: those of the server; how many the client has in flight is the run's.
            count: requests to draw; none: as many as come, or enough to begin with.
        """
        wanted = _count(run) if count is None else count
        arrivals, prompts, answers = np.random.SeedSequence(SEED).spawn(3)
        users = run.max_in_flight if run.arrivals is Arrivals.CLOSED else None
        requests = Requests(
            in_tokens=run.prompts.lengths(least=1).draw(wanted, np.random.default_rng(prompts)),
            out_tokens=run.answers.lengths(least=1).draw(wanted, np.random.default_rng(answers)),
            arrival_ms=None if users else _arrivals_ms(run, wanted, np.random.default_rng(arrivals)),
            think_ms=np.zeros(wanted) if users else None,
            wakes_ms=np.zeros(users) if users else None,
        )
        span_ms = math.inf if run.duration_s is None else run.duration_s * MS_PER_S
        in_flight = UNLIMITED if users or run.max_in_flight is None else run.max_in_flight
        return cls(run, requests, limits._replace(max_in_flight=in_flight), span_ms)

    def play(self, times: IterationCoefficients, *, detailed: bool = False) -> Figures:
        """Run it, and count the requests that end in time.

        A user of a closed loop sends the next request when it has seen the last token, as late as a client
        sees tokens.

        Raises:
            AnalysisError: an iteration would take no time.
        """
        requests = self.requests
        if requests.think_ms is not None and (lag_ms := self._lag_ms(times)) > 0:
            requests = replace(requests, think_ms=np.full(len(requests), lag_ms))
        machine = machine_of(requests, self.limits)
        advance(machine, times, self.limits, self.span_ms)
        if self._ran_out(int(machine.state[0]["next_row"])):
            return self._longer().play(times, detailed=detailed)
        return _figures(run_of(machine, requests, times), self.span_ms, detailed=detailed)

    def _ran_out(self, sent: int) -> bool:
        """Say whether users of a closed loop would have gone on within the duration."""
        endless = self.requests.think_ms is not None and self.run.requests is None
        return endless and len(self.requests) <= min(sent, MOST_REQUESTS - 1) and self.span_ms < math.inf

    def _lag_ms(self, times: IterationCoefficients) -> float:
        """Return by how much later a user of a closed loop sees tokens, from a few requests without it."""
        users = self.run.max_in_flight or 1
        if users == 1 or not (times.pipeline_depth or times.front_end_lag):
            return times.client_offset_ms
        few = min(max(FEW_LIVES * users, LEAST_CLOSED), len(self.requests))
        sample = replace(
            self.requests,
            in_tokens=self.requests.in_tokens[:few],
            out_tokens=self.requests.out_tokens[:few],
            think_ms=np.zeros(few),
        )
        machine = machine_of(sample, self.limits)
        advance(machine, times, self.limits, self.span_ms)
        found = _figures(run_of(machine, sample, times), self.span_ms, detailed=False)
        itl_ms = 0.0 if math.isnan(found.itl_ms) else found.itl_ms
        depth = times.pipeline_depth + times.front_end_lag * (users - 1)
        return times.client_offset_ms + depth * itl_ms

    def _longer(self) -> "Replay":
        return Replay.of(self.run, self.limits, min(4 * len(self.requests), MOST_REQUESTS))


def _figures(run: Run, span_ms: float, *, detailed: bool) -> Figures:
    """Return what a client counts of a run."""
    ended = run.last_ms <= span_ms
    count = int(ended.sum())
    if not count:
        return Figures(math.nan, math.nan, 0.0, 0)
    last_ms, ttft = run.last_ms[ended], run.ttft_ms[ended]
    gaps, spans = run.requests.out_tokens[ended] - 1, last_ms - run.first_ms[ended]
    whole_ms = span_ms if span_ms < math.inf else float(last_ms.max())
    found = Figures(
        ttft_ms=float(np.median(ttft)),
        itl_ms=float(spans.sum() / gaps.sum()) if gaps.sum() > 0 else math.nan,
        throughput_rps=count / whole_ms * MS_PER_S,
        completed=count,
    )
    if not detailed:
        return found
    itl = run.itl_ms[ended]
    return found._replace(
        ttft_percentiles=_percentiles(ttft),
        itl_percentiles=_percentiles(itl[~np.isnan(itl)]),
        in_flight=float(run.e2e_ms[ended].sum() / whole_ms),
    )


def shortened(run: BenchmarkRun) -> BenchmarkRun:
    """Return a run of fewer requests, from which derivatives are taken; a short one stays as it is."""
    measured = run.measured
    rate = run.rate_rps or measured.throughput_rps
    if run.duration_s is None or run.is_alone or not rate:
        return run
    life_s = ((measured.ttft_ms or 0.0) + run.answers.mean * (measured.itl_ms or 0.0)) / MS_PER_S
    duration_s = max(FEW_REQUESTS / rate, LIVES * life_s)
    return run if duration_s >= 0.8 * run.duration_s else replace(run, duration_s=duration_s)


def _count(run: BenchmarkRun) -> int:
    if run.duration_s is None:
        assert run.requests is not None
        return min(run.requests, MOST_REQUESTS)
    if run.arrivals is Arrivals.CLOSED:
        expected = (run.measured.throughput_rps or 0.0) * run.duration_s
        count = max(LEAST_CLOSED, int(1.5 * expected) + 4 * (run.max_in_flight or 0))
    else:
        assert run.rate_rps is not None
        expected = run.rate_rps * run.duration_s
        count = int(expected + 5 * math.sqrt(expected) * run.cv) + 10 + run.burst
    return min(count if run.requests is None else min(count, run.requests), MOST_REQUESTS)


def _arrivals_ms(run: BenchmarkRun, count: int, rng: np.random.Generator) -> FloatArray:
    if run.rate_rps is None or run.rate_rps == math.inf:
        return np.zeros(count)
    burst = min(run.burst, count)
    return np.concatenate([np.zeros(burst), arrival_times_ms(run.rate_rps, count - burst, rng, run.cv)])


def _percentiles(values: FloatArray) -> tuple[float, ...]:
    if not len(values):
        return ()
    return tuple(float(value) for value in np.percentile(values, PERCENTILES))
