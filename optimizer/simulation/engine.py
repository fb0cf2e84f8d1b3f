"""The engine: runs requests through one replica and records their times.

The state machine has no clock; the caller states how far to run. A simulation runs it to the end; a live
replica (`simulation.live`) runs the same code one step at a time. It is compiled on first use and cached.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.errors import AnalysisError
from optimizer.simulation.clients import client_ms
from optimizer.simulation.law import Coefficients, IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import EngineState, initial_state
from optimizer.simulation.requests import Requests

PER_REQUEST = ("sent_ms", "first_ms", "last_ms", "client_ms", "preemptions")
"""Fields of `SimulatedRun` with one value per request."""
MAX_OUTPUT_TOKENS = 10_000_000
"""Maximum output length [tokens]; the engine keeps a list for each iteration in which an output can end."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Results of R requests, in send order; NaN if an event did not happen."""

    requests: Requests
    sent_ms: FloatArray
    """Send time [ms]: the arrival time, or the time at which the client had a free slot."""
    first_ms: FloatArray
    """Time of the first token [ms]."""
    last_ms: FloatArray
    """Time of the last token [ms]."""
    client_ms: FloatArray
    """Delay of tokens between the engine and the client [ms]."""
    preemptions: IntArray
    """Number of preemptions of each request."""
    busy_ms: float
    """Time with a non-empty batch [ms]."""
    batch_ms: float
    """Integral of the batch over time [ms]."""
    iterations: int
    """Number of iterations, or of batches of a dynamic-batching server; 0 under processor sharing."""

    def of_stream(self, stream: int) -> "SimulatedRun":
        """Return the results for the requests of one of the merged loads.

        Batch metrics still cover all loads.
        """
        assert self.requests.stream is not None
        rows = np.flatnonzero(self.requests.stream == stream)
        kept = {name: frozen(getattr(self, name)[rows]) for name in PER_REQUEST}
        return replace(self, requests=self.requests.take(rows), **kept)

    @property
    def rejected(self) -> BoolArray:
        """Mask of the requests that were sent and rejected."""
        return np.isnan(self.last_ms) & ~np.isnan(self.sent_ms)

    @property
    def ttft_ms(self) -> FloatArray:
        """TTFT at the client [ms]."""
        return self.first_ms - self.sent_ms + self.client_ms

    @property
    def itl_ms(self) -> FloatArray:
        """Mean ITL of each output [ms]; NaN for outputs of one token."""
        gaps = self.requests.out_tokens - 1
        return np.where(gaps > 0, (self.last_ms - self.first_ms) / np.maximum(gaps, 1), math.nan)

    @property
    def e2e_ms(self) -> FloatArray:
        """Time to the last token at the client [ms]."""
        return self.last_ms - self.sent_ms + self.client_ms


def simulate(requests: Requests, times: Coefficients, limits: Limits) -> SimulatedRun:
    """Run requests through an empty replica until all have completed.

    Args:
        times: latency model.
        limits: limits of the replica.

    Raises:
        AnalysisError: an iteration would take no time, or an output is too long.
    """
    check_tokens(int(requests.out_tokens.max(initial=1)))
    machine = initial_state(requests, limits)
    advance(machine, times, limits)
    return run_of(machine, requests, times)


def run_of(machine: EngineState, requests: Requests, times: Coefficients) -> SimulatedRun:
    """Return the results of the engine up to its current time."""
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
    """Advance the engine; an iteration runs if it starts before `until_ms`, even if it ends later.

    Args:
        machine: state, changed in place.
        times: latency model.
        limits: limits of the replica.
        until_ms: end of the run.

    Raises:
        AnalysisError: an iteration would take no time.
    """
    if isinstance(times, IterationCoefficients):
        from optimizer.simulation.machine.iterations import run_iterations

        run_iterations(machine, times, limits, float(until_ms))
    else:
        from optimizer.simulation.machine.sharing import run_shared

        run_shared(machine, times, limits, float(until_ms))
    check_progress(is_stuck=machine.state[0]["stuck"])


def check_tokens(longest: int) -> None:
    """Check that the longest output is not too long for the engine [tokens].

    Raises:
        AnalysisError: it is too long.
    """
    if longest > MAX_OUTPUT_TOKENS:
        raise AnalysisError(
            f"an answer of {longest} tokens is too long to simulate; the limit is {MAX_OUTPUT_TOKENS} tokens"
        )


def check_progress(*, is_stuck: bool) -> None:
    """Check that the last iteration took time.

    Raises:
        AnalysisError: it took none, so the simulation would not progress.
    """
    if is_stuck:
        raise AnalysisError(
            "the time of an iteration is not positive; give token times that are positive for every batch"
        )


def announcing_compilation(announce: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `announce` if the body of the context compiles the engine, which takes some seconds."""
    from optimizer.simulation.machine.compiling import announcing

    return announcing(announce)
