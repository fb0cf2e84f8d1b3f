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


Problem = tuple[bool, str, str]
"""Whether a setting is not supported, its key in documents, and the reason."""


def line_problem(line: Tandem, arrival_cv: float, window: str, arrivals: str) -> tuple[str, str] | None:
    """Return an unsupported setting of a server with stages and the reason; None if it can be analysed.

    Args:
        line: the server and its stages.
        arrival_cv: CV of the interarrival times.
        window: key of the batching window in documents.
        arrivals: key of the CV of the interarrival times.
    """
    problems = *_of_jobs(line, window), *_of_server(line.server, arrival_cv, window, arrivals)
    return next(((key, why) for wrong, key, why in problems if wrong), None)


def _of_jobs(line: Tandem, window: str) -> tuple[Problem, ...]:
    has_jobs = line.jobs != ALL_JOBS
    return (
        (
            line.jobs > MAX_JOBS,
            "jobs",
            f"at most {MAX_JOBS} jobs are supported, not {line.jobs}; lower or remove it",
        ),
        (
            has_jobs and line.server.queue_limit < UNLIMITED,
            "maxQueueSize",
            "with jobs, the queue before the replica is unlimited; remove this limit, or jobs",
        ),
        (
            has_jobs and line.server.window_ms > 0,
            window,
            "with jobs, batches start without a window; "
            + (
                "remove batchTrigger and batchTimeout, or jobs"
                if line.server.trigger == CLOCK
                else "remove the window, or jobs"
            ),
        ),
    )


def _of_server(server: BatchServer, arrival_cv: float, window: str, arrivals: str) -> tuple[Problem, ...]:
    clock, full_ms = server.trigger == CLOCK, server.base_ms + server.slope_ms * server.size
    return (
        (
            server.size > MAX_BATCH,
            "maxBatchSize",
            f"a batch of at most {MAX_BATCH} requests is supported, not {server.size}; lower it",
        ),
        (
            server.window_ms > 0 and not clock and server.queue_limit < server.size,
            "maxQueueSize",
            (
                f"a queue of {server.queue_limit} never fills a batch of {server.size}, so every window runs "
                "out; allow at least one batch, or set no window"
            ),
        ),
        (
            clock and (server.window_ms <= 0 or server.window_ms < full_ms * (1 - ROUNDING)),
            window,
            (
                f"a clock tick of {server.window_ms:.12g} ms is shorter than a full batch of "
                f"{full_ms:.12g} ms; "
                "lengthen the window to at least that time"
            ),
        ),
        (
            server.counts_system and server.queue_limit < 1,
            "maxQueueSize",
            "a system limit of 0 admits no request; set it to 1 or more",
        ),
        (
            server.counts_system and clock,
            "queueCounts",
            "with a clock only waiting requests can be counted; set queueCounts to waiting",
        ),
        (
            arrival_cv > MAX_CV,
            arrivals,
            f"{arrival_cv:g} is outside the tested range 0 … {MAX_CV:g}; lower it",
        ),
    )
