"""Token-time laws: how long the steps of a request take when a replica runs a given batch.

A law holds the fitted parameters of many rows at once (a row is one model on one accelerator with one
request shape) and answers two questions: the service time of a request at a constant batch, which makes
the departure rates of the queue, and the mean prefill and token times that belong to a measured mean
service time. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, fields
from typing import Protocol, Self

from optimizer.arrays import BoolArray, FloatArray, IntArray

DEFAULT_MAX_NUM_TOKENS = 8192
"""Token budget of one iteration where a profile states none (vLLM's usual setting)."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Mean times of a request's phases, each in ms with shape (R,)."""

    prefill_ms: FloatArray
    itl_ms: FloatArray
    first_token_ms: FloatArray
    """From the start of service to the first token; the wait before service is not in it."""


class TimingLaw(Protocol):
    """What the queueing model asks of a token-time law over R rows."""

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the phase times that belong to a mean service time; all shapes (R,)."""

    def steps(self, max_batch: IntArray) -> BoolArray:
        """Return whether latencies step anywhere between a batch of one and the limit; shapes (R,)."""

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return what the reference quotes for replicas without load, from requests of one token.

        The second part is the turnaround of a full batch [ms]; all shapes (R,).
        """

    def take(self, rows: IntArray) -> Self:
        """Return the law of the chosen rows, in their order."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What every law is: parameters as equally long arrays, selected together."""

    def take(self, rows: IntArray) -> Self:
        """Return the law of the chosen rows, in their order."""
        return type(self)(*(getattr(self, f.name)[rows] for f in fields(self)))
