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
from optimizer.simulation.clients import client_ms
from optimizer.simulation.law import Coefficients, IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import EngineState, initial_state
from optimizer.simulation.requests import Requests

LONGEST_ANSWER = 10_000_000
"""Tokens; there is a list for each iteration with which an answer may end."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
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


def simulate(requests: Requests, times: Coefficients, limits: Limits) -> SimulatedRun:
    """Run requests through an empty replica until all have left it.

    Raises:
        AnalysisError: an iteration would take no time, or an answer is too long.
    """
    longest = int(requests.out_tokens.max(initial=1))
    if longest > LONGEST_ANSWER:
        raise AnalysisError(
            f"an answer of {longest} tokens is too long to simulate; the limit is {LONGEST_ANSWER} tokens"
        )
    machine = initial_state(requests, limits)
    advance(machine, times, limits)
    return run_of(machine, requests, times)


def run_of(machine: EngineState, requests: Requests, times: Coefficients) -> SimulatedRun:
    """Return what has become of the requests of a machine by now."""
    state = machine.state[0]
    return SimulatedRun(
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


def advance(machine: EngineState, times: Coefficients, limits: Limits, until_ms: float = math.inf) -> None:
    """Run a machine on; with iterations, all that begin before `until_ms`.

    Raises:
        AnalysisError: an iteration would take no time.
    """
    if isinstance(times, IterationCoefficients):
        from optimizer.simulation.machine.iterations import run_iterations

        run_iterations(machine, times, limits, float(until_ms))
    else:
        from optimizer.simulation.machine.sharing import run_shared

        run_shared(machine, times, limits, float(until_ms))
    if machine.state[0]["stuck"]:
        raise AnalysisError(
            "the time of an iteration is not positive; give token times that are positive for every batch"
        )


def announcing_compilation(announce: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `announce` if the engine must be compiled in the body of the context, which takes some seconds."""
    from optimizer.simulation.machine.compiling import announcing

    return announcing(announce)
