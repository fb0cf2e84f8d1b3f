"""Replays a benchmark run in the simulator: from an empty server, with the client's duration and metrics.

Random streams are fixed for each run and equal for all latency models, so predictions of two models differ
only because of their times.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.fitting.runs import Arrivals, BenchmarkRun
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.engine import SimulatedRun, advance, run_of
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.machine.state import initial_state
from optimizer.simulation.requests import Requests

SEED = 42
MS_PER_S = 1000.0
MIN_CLOSED = 1024
"""Initial number of requests that are drawn for a closed loop."""
MAX_REQUESTS = 4_000_000
FEW_LIVES = 4
"""Number of requests per user in the sample from which the ITL is estimated."""
FEW_REQUESTS = 1500
LIVES = 12
"""Minimum length of a shortened run, in consecutive requests of a user."""
MANY_REQUESTS = 20_000
"""Minimum number of requests over all draws, if the expected metrics of a run are needed."""
MAX_DRAWS = 8


class RunMetrics(NamedTuple):
    """Metrics of a run as a client measures them; NaN if no request completes."""

    ttft_ms: float
    """Median TTFT [ms]."""
    itl_ms: float
    """Total time between first and last tokens divided by the number of gaps, over all requests [ms]."""
    throughput_rps: float
    """Completed requests divided by the duration [requests/s]."""
    completed: int
    ttft_percentiles: Sequence[float] = ()
    """Percentiles of the TTFT at `PERCENTILES` [ms]."""
    itl_percentiles: Sequence[float] = ()
    in_flight: float = math.nan
    """Mean number of requests in flight."""


PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class BenchmarkReplay:
    """A run with its random requests, drawn as often as needed to estimate its expected metrics."""

    run: BenchmarkRun
    draws: tuple[Requests, ...]
    limits: Limits
    span_ms: float
    """Duration of the run [ms]; inf if the run ends with its last request."""

    @classmethod
    def of(
        cls, run: BenchmarkRun, limits: Limits, requests: int = 0, most_draws: int = MAX_DRAWS
    ) -> "BenchmarkReplay":
        """Draw the requests of a finite run, repeatedly until there are enough.

        Args:
            limits: limits of the server; the limit on requests in flight is that of the run.
            requests: minimum number of requests over all draws.
            most_draws: maximum number of draws.
        """
        count = _count(run)
        enough = max(math.ceil(requests / max(_completed(run), 1.0)), 1)
        draws = min(enough, most_draws if run.is_random else 1)
        seeds = [np.random.SeedSequence(SEED + i) for i in range(draws)]
        users = run.arrivals is Arrivals.CLOSED
        span_ms = math.inf if run.duration_s is None else run.duration_s * MS_PER_S
        in_flight = UNLIMITED if users or run.max_in_flight is None else run.max_in_flight
        return cls(
            run,
            tuple(_requests(run, count, seed) for seed in seeds),
            limits._replace(max_in_flight=in_flight),
            span_ms,
        )

    def __len__(self) -> int:
        """Return the number of requests over all draws."""
        return sum(map(len, self.draws))

    def simulate(self, times: IterationCoefficients, *, detailed: bool = False) -> RunMetrics:
        """Simulate all draws; return mean metrics over the requests that complete within the duration.

        A user of a closed loop sends the next request after receiving the last token, plus the client's
        delay.

        Raises:
            AnalysisError: an iteration would take no time.
        """
        pause_ms = self.run.think_ms + self._lag_ms(times)
        return _mean([self._simulate(each, times, pause_ms, detailed=detailed) for each in self.draws])

    def _simulate(
        self, requests: Requests, times: IterationCoefficients, pause_ms: float, *, detailed: bool
    ) -> RunMetrics:
        if requests.think_ms is not None and pause_ms > 0:
            requests = replace(requests, think_ms=np.full(len(requests), pause_ms))
        machine = initial_state(requests, self.limits)
        advance(machine, times, self.limits, self.span_ms)
        if self._ran_out(requests, int(machine.state[0]["next_row"])):
            more = _requests(self.run, min(4 * len(requests), MAX_REQUESTS), np.random.SeedSequence(SEED))
            return self._simulate(more, times, pause_ms, detailed=detailed)
        return _figures(run_of(machine, requests, times), self.span_ms, detailed=detailed)

    def _ran_out(self, requests: Requests, sent: int) -> bool:
        """Return whether closed-loop users would have sent more requests than drawn within the duration."""
        endless = requests.think_ms is not None and self.run.requests is None
        return endless and len(requests) <= min(sent, MAX_REQUESTS - 1) and self.span_ms < math.inf

    def _lag_ms(self, times: IterationCoefficients) -> float:
        """Return the client's delay in a closed loop [ms], estimated from a few requests."""
        users, requests = self.run.max_in_flight or 1, self.draws[0]
        if users == 1:
            return times.client_offset_ms + times.idle_offset_ms
        if requests.think_ms is None or not (times.pipeline_depth or times.front_end_lag):
            return times.client_offset_ms
        few = min(max(FEW_LIVES * users, MIN_CLOSED), len(requests))
        sample = replace(
            requests,
            in_tokens=requests.in_tokens[:few],
            cached_tokens=None if requests.cached_tokens is None else requests.cached_tokens[:few],
            out_tokens=requests.out_tokens[:few],
            think_ms=np.zeros(few),
        )
        machine = initial_state(sample, self.limits)
        advance(machine, times, self.limits, self.span_ms)
        rows = machine.rows[machine.rows["last_ms"] <= self.span_ms]
        itl_ms = _itl_ms(rows["out_tokens"] - 1, rows["last_ms"] - rows["first_ms"])
        depth = times.pipeline_depth + times.front_end_lag * (users - 1)
        return times.client_offset_ms + (0.0 if math.isnan(itl_ms) else depth * itl_ms)


def _requests(run: BenchmarkRun, count: int, seed: np.random.SeedSequence) -> Requests:
    """Draw the random lengths and arrival times of a run's requests."""
    arrivals, prompts, answers = seed.spawn(3)
    users = run.max_in_flight if run.arrivals is Arrivals.CLOSED else None
    in_tokens = run.prompts.lengths(least=1).draw(count, np.random.default_rng(prompts))
    cached = np.minimum(np.rint(run.cached_share * in_tokens).astype(np.int64), in_tokens - 1)
    return Requests(
        in_tokens=in_tokens,
        cached_tokens=cached if run.cached_share else None,
        out_tokens=run.answers.lengths(least=1).draw(count, np.random.default_rng(answers)),
        arrival_ms=None if users else _arrivals_ms(run, count, np.random.default_rng(arrivals)),
        think_ms=np.zeros(count) if users else None,
        wakes_ms=np.zeros(users) if users else None,
    )


def _mean(run_metrics: Sequence[RunMetrics]) -> RunMetrics:
    """Average the metrics of several draws; draws without completed requests count only for throughput."""
    known = [figures for figures in run_metrics if figures.completed]
    if len(run_metrics) == 1 or not known:
        return run_metrics[0]
    columns = {name: [getattr(figures, name) for figures in known] for name in RunMetrics._fields}
    means: dict[str, Any] = {name: np.mean(column, axis=0).tolist() for name, column in columns.items()}
    means["throughput_rps"] = sum(columns["throughput_rps"]) / len(run_metrics)
    means["completed"] = round(sum(columns["completed"]) / len(run_metrics))
    return RunMetrics(**means)


def _figures(run: SimulatedRun, span_ms: float, *, detailed: bool) -> RunMetrics:
    """Return the metrics that a client measures in a simulated run."""
    ended = run.last_ms <= span_ms
    count = int(ended.sum())
    if not count:
        return RunMetrics(math.nan, math.nan, 0.0, 0)
    last_ms, ttft = run.last_ms[ended], run.ttft_ms[ended]
    gaps, spans = run.requests.out_tokens[ended] - 1, last_ms - run.first_ms[ended]
    whole_ms = span_ms if span_ms < math.inf else float(last_ms.max())
    figures = RunMetrics(
        ttft_ms=float(np.median(ttft)),
        itl_ms=_itl_ms(gaps, spans),
        throughput_rps=count / whole_ms * MS_PER_S,
        completed=count,
    )
    if not detailed:
        return figures
    itl = run.itl_ms[ended]
    return figures._replace(
        ttft_percentiles=_percentiles(ttft),
        itl_percentiles=_percentiles(itl[~np.isnan(itl)]),
        in_flight=float(run.e2e_ms[ended].sum() / whole_ms),
    )


def _itl_ms(gaps: IntArray, spans_ms: FloatArray) -> float:
    """Return the total time between first and last tokens divided by the number of gaps [ms]."""
    count = gaps.sum()
    return float(spans_ms.sum() / count) if count > 0 else math.nan


def with_fewer_requests(run: BenchmarkRun) -> BenchmarkRun:
    """Return the run with fewer requests, to compute derivatives faster; short runs are unchanged."""
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
        return min(run.requests, MAX_REQUESTS)
    if run.arrivals is Arrivals.CLOSED:
        expected = (run.measured.throughput_rps or 0.0) * run.duration_s
        count = max(MIN_CLOSED, int(1.5 * expected) + 4 * (run.max_in_flight or 0))
    else:
        assert run.rate_rps is not None
        expected = run.rate_rps * run.duration_s
        count = int(expected + 5 * math.sqrt(expected) * run.cv) + 10 + run.burst
    return min(count if run.requests is None else min(count, run.requests), MAX_REQUESTS)


def _completed(run: BenchmarkRun) -> float:
    """Return the expected number of completed requests; if unknown, inf for many users and 0 for one."""
    if run.duration_s is None:
        return float(_count(run))
    known = run.rate_rps or run.measured.throughput_rps
    if known is None:
        return 0.0 if run.is_alone else math.inf
    return known * run.duration_s


def _arrivals_ms(run: BenchmarkRun, count: int, rng: np.random.Generator) -> FloatArray:
    if run.rate_rps is None or run.rate_rps == math.inf:
        return np.zeros(count)
    burst = min(run.burst, count)
    return np.concatenate([np.zeros(burst), arrival_times_ms(run.rate_rps, count - burst, rng, run.cv)])


def _percentiles(values: FloatArray) -> list[float]:
    return np.percentile(values, PERCENTILES).tolist() if len(values) else []
