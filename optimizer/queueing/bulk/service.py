"""Services, places to wait beside them, and windows behind them: compiled."""

from optimizer.arrays import FloatArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled

FIRST_POINTS = 48
"""Ages of the oldest at which a window is opened, where no closed form is at hand."""


@compiled
def service_ms(server: BatchServer, n: int) -> float:
    """Return how long n requests are served together."""
    return server.base_ms + server.slope_ms * n


@compiled
def room_beside(server: BatchServer, n: int) -> int:
    """Return how many may wait while n are served."""
    return server.room - n if server.counts_system else server.room


@compiled
def fill_window(in_window: FloatArray, first: int, size: int, flow: float, out: FloatArray) -> None:
    """Add what becomes of `first` < B requests with a window ahead: the batch with which it ends.

    Args:
        in_window: how likely 0 … B − 1 − first come in it.
        first: the requests.
        size: B.
        flow: how often.
        out: what is added to, by batch.
    """
    rest = 1.0
    for j in range(first, size):
        out[j] += flow * in_window[j - first]
        rest -= in_window[j - first]
    out[size] += flow * max(rest, 0.0)
