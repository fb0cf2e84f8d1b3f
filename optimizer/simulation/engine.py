"""The engine: runs requests through one replica, and gives the times of each.

The machine behind it has no clock of its own: it is told how far to run. A simulation runs it to the end;
whoever serves live requests runs it up to now, again and again. It is compiled when it first runs, and
loaded from then on.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.errors import AnalysisError
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.clients import client_ms
from optimizer.simulation.law import Coefficients, IterationCoefficients, StaticCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.lines import Line
from optimizer.simulation.machine.state import Machine, machine_of
from optimizer.simulation.requests import Requests

LONGEST_ANSWER = 10_000_000
"""Tokens; there is a list for each iteration with which an answer may end."""


@dataclass(frozen=True, slots=True)
class Run:
    """What became of R requests, in the order in which they were sent; NaN where nothing came of one."""

    requests: Requests
    sent_ms: FloatArray
    """When the client sent each: when it came, or when the client had a place for it."""
    first_ms: FloatArray
    """First token."""
    last_ms: FloatArray
    """Last token."""
    client_ms: FloatArray
    """By how much later than the engine's time the client saw the tokens of each."""
    preemptions: IntArray
    """How often each lost its place."""
    busy_ms: float
    """Time with anything in the batch."""
    batch_ms: float
    """Integral of the batch over time."""
    iterations: int
    """Iterations run, or batches of a batch server; 0 where all progress at once."""

    @property
    def rejected(self) -> BoolArray:
        """Which requests were sent and turned away."""
        return np.isnan(self.last_ms) & ~np.isnan(self.sent_ms)

    @property
    def ttft_ms(self) -> FloatArray:
        """Time to first token, as the client sees it."""
        return self.first_ms - self.sent_ms + self.client_ms

    @property
    def itl_ms(self) -> FloatArray:
        """Mean time between the tokens of each answer; NaN for answers of one token."""
        gaps = self.requests.out_tokens - 1
        return np.where(gaps > 0, (self.last_ms - self.first_ms) / np.maximum(gaps, 1), math.nan)

    @property
    def e2e_ms(self) -> FloatArray:
        """Time to last token, as the client sees it."""
        return self.last_ms - self.sent_ms + self.client_ms


def simulate(requests: Requests, times: Coefficients, limits: Limits) -> Run:
    """Run requests through an empty replica until all have left it.

    Raises:
        AnalysisError: an iteration would take no time, or an answer is too long.
    """
    if isinstance(times, BatchServer | Line):
        return _batched(requests, times)
    if isinstance(times, StaticCoefficients):
        return _static(requests, times, limits)
    longest = int(requests.out_tokens.max(initial=1))
    if longest > LONGEST_ANSWER:
        raise AnalysisError(
            f"an answer of {longest} tokens is too long to simulate; the limit is {LONGEST_ANSWER} tokens"
        )
    machine = machine_of(requests, limits)
    advance(machine, times, limits)
    return run_of(machine, requests, times)


def run_of(machine: Machine, requests: Requests, times: Coefficients) -> Run:
    """Return what has become of the requests of a machine by now."""
    state = machine.state[0]
    return Run(
        requests=requests,
        sent_ms=frozen(machine.rows["sent_ms"].copy()),
        first_ms=frozen(machine.rows["first_ms"].copy()),
        last_ms=frozen(machine.rows["last_ms"].copy()),
        client_ms=frozen(client_ms(machine.rows, times)),
        preemptions=frozen(machine.rows["preempted"].copy()),
        busy_ms=float(state["busy_ms"]),
        batch_ms=float(state["batch_ms"]),
        iterations=int(state["iterations"]),
    )


def _batched(requests: Requests, times: BatchServer | Line) -> Run:
    """Run requests through a batch server or a line; the first token of an answer is its last."""
    from optimizer.simulation.machine.passing import run_line

    assert requests.arrival_ms is not None
    count = len(requests)
    start_ms, last_ms = np.empty(count), np.empty(count)
    come_ms = np.array(requests.arrival_ms)
    line = times if isinstance(times, Line) else Line(times)
    stage_ms = np.empty((0, count)) if requests.stage_ms is None else requests.stage_ms
    busy_ms, batch_ms, batches = run_line(line, come_ms, stage_ms, start_ms, last_ms)
    answered_ms = frozen(last_ms)
    none = frozen(np.zeros(count, np.int64))
    return Run(
        requests=requests,
        sent_ms=frozen(come_ms),
        first_ms=answered_ms,
        last_ms=answered_ms,
        client_ms=frozen(np.zeros(count)),
        preemptions=none,
        busy_ms=busy_ms,
        batch_ms=batch_ms,
        iterations=batches,
    )


def _static(requests: Requests, times: StaticCoefficients, limits: Limits) -> Run:
    """Run requests in static batches."""
    from optimizer.simulation.machine.statics import run_statics

    assert requests.arrival_ms is not None
    count = len(requests)
    come_ms, first_ms, last_ms = np.array(requests.arrival_ms), np.empty(count), np.empty(count)
    tokens = np.array(requests.in_tokens), np.array(requests.out_tokens)
    bounds = limits.max_batch, limits.max_queue
    busy_ms, batch_ms, batches = run_statics(
        times, *bounds, come_ms, *tokens, first_ms, last_ms, np.empty(count, np.int64)
    )
    return Run(
        requests=requests,
        sent_ms=frozen(come_ms),
        first_ms=frozen(first_ms),
        last_ms=frozen(last_ms),
        client_ms=frozen(np.zeros(count)),
        preemptions=frozen(np.zeros(count, np.int64)),
        busy_ms=busy_ms,
        batch_ms=batch_ms,
        iterations=batches,
    )


def advance(machine: Machine, times: Coefficients, limits: Limits, until_ms: float = math.inf) -> None:
    """Run a machine on; with iterations, all that begin before `until_ms`.

    Raises:
        AnalysisError: an iteration would take no time.
    """
    if isinstance(times, IterationCoefficients):
        from optimizer.simulation.machine.iterations import run_iterations

        run_iterations(machine, times, limits, float(until_ms))
    else:
        from optimizer.simulation.machine.sharing import run_shared

        assert not isinstance(
            times, BatchServer | Line | StaticCoefficients
        )  # it needs no machine of iterations
        run_shared(machine, times, limits, float(until_ms))
    if machine.state[0]["stuck"]:
        raise AnalysisError(
            "the time of an iteration is not positive; give token times that are positive for every batch"
        )


def announcing_compilation(announce: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `announce` if the engine must be compiled in the body of the context, which takes some seconds."""
    from optimizer.simulation.machine.compiling import announcing

    return announcing(announce)
