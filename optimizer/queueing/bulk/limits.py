"""Checks whether the queue model can analyse a batch server."""

from optimizer.simulation.batches import CLOCK, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import ALL_JOBS, Tandem

MAX_BATCH = 512
"""Largest supported batch limit [requests]; the work grows with its square."""
MAX_JOBS = 1024
"""Largest supported limit on jobs inside a replica."""
ROUNDING = 1e-9
MAX_CV = 3.0
"""Largest CV of the interarrival times for which results were tested."""


def server_problem(server: BatchServer, arrival_cv: float) -> tuple[str, str] | None:
    """Return an unsupported parameter of a batch server and the reason; None if it can be analysed."""
    full_ms = server.base_ms + server.slope_ms * server.size
    clock = server.trigger == CLOCK
    problems = (
        (
            server.size > MAX_BATCH,
            "size",
            f"a batch of at most {MAX_BATCH} requests is supported, not {server.size}; lower it",
        ),
        (
            server.window_ms > 0 and not clock and server.queue_limit < server.size,
            "queue_limit",
            (
                f"a queue of {server.queue_limit} never fills a batch of {server.size}, so every window runs "
                "out; allow at least one batch, or set no window"
            ),
        ),
        (
            clock and (server.window_ms <= 0 or server.window_ms < full_ms * (1 - ROUNDING)),
            "window_ms",
            (
                f"a clock tick of {server.window_ms:.12g} ms is shorter than a full batch of "
                f"{full_ms:.12g} ms; "
                "lengthen the window to at least that time"
            ),
        ),
        (
            server.counts_system and server.queue_limit < 1,
            "queue_limit",
            "a system limit of 0 admits no request; set it to 1 or more",
        ),
        (
            server.counts_system and clock,
            "counts_system",
            "with a clock only waiting requests can be counted; set queueCounts to waiting",
        ),
        (
            arrival_cv > MAX_CV,
            "arrival_cv",
            f"{arrival_cv:g} is outside the tested range 0 … {MAX_CV:g}; lower it",
        ),
    )
    return next(((part, why) for wrong, part, why in problems if wrong), None)


def line_problem(line: Tandem) -> tuple[str, str] | None:
    """Return an unsupported parameter of a server with stages and the reason; None if it can be analysed."""
    if line.jobs == ALL_JOBS:
        return None
    problems = (
        (
            line.jobs > MAX_JOBS,
            "jobs",
            f"at most {MAX_JOBS} jobs are supported, not {line.jobs}; lower or remove it",
        ),
        (
            line.server.queue_limit < UNLIMITED,
            "queue_limit",
            "with jobs, the queue before the replica is unlimited; remove this limit, or jobs",
        ),
        (
            line.server.window_ms > 0,
            "window_ms",
            "with jobs, batches start without a window; "
            + (
                "remove batchTrigger and batchTimeout, or jobs"
                if line.server.trigger == CLOCK
                else "remove the window, or jobs"
            ),
        ),
    )
    return next(((part, why) for wrong, part, why in problems if wrong), None)
