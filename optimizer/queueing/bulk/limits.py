"""Limits of the dynamic-batching servers that the queue model can analyse."""

from optimizer.simulation.batches import CLOCK, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import ALL_JOBS, Tandem

MAX_BATCH = 512
"""Largest batch analysed: the work grows with its square."""
MAX_JOBS = 1024
"""Maximum jobs inside a replica that is analysed."""
ROUNDING = 1e-9
MAX_CV = 3.0
"""Largest CV of the interarrival times for which results were tested."""


def server_problem(server: BatchServer, arrival_cv: float) -> tuple[str, str] | None:
    """Return the invalid parameter of a server and the reason, None if it can be analysed."""
    full_ms = server.base_ms + server.slope_ms * server.size
    clock = server.trigger == CLOCK
    problems = (
        (
            server.size > MAX_BATCH,
            "size",
            f"a batch server answers at most {MAX_BATCH} requests together, not {server.size}",
        ),
        (
            server.window_ms > 0 and not clock and server.room < server.size,
            "room",
            (
                f"{server.room} places never hold a batch of {server.size}, so that no window ends early; "
                "make it the batch at least, or set no window"
            ),
        ),
        (
            clock and (server.window_ms <= 0 or server.window_ms < full_ms * (1 - ROUNDING)),
            "window_ms",
            (
                f"a clock ticks every {server.window_ms:g} ms, and a full batch takes {full_ms:g} ms; make "
                "the window that long at least"
            ),
        ),
        (
            server.counts_system and server.room < 1,
            "room",
            "a system of no places takes no request; make it 1 or more",
        ),
        (
            server.counts_system and clock,
            "counts_system",
            "a clock counts those who wait only; set queueCounts to waiting",
        ),
        (
            arrival_cv > MAX_CV,
            "arrival_cv",
            f"{arrival_cv:g} is beyond the 0 … {MAX_CV:g} that batch servers were tested for; lower it",
        ),
    )
    return next(((part, why) for wrong, part, why in problems if wrong), None)


def line_problem(line: Tandem) -> tuple[str, str] | None:
    """Return the invalid parameter of a server with stages and the reason, None if it can be analysed."""
    if line.jobs == ALL_JOBS:
        return None
    problems = (
        (
            line.jobs > MAX_JOBS,
            "jobs",
            f"at most {MAX_JOBS} jobs at once are analysed, not {line.jobs}; lower it, or remove it",
        ),
        (
            line.server.room < UNLIMITED,
            "room",
            "jobs wait before the replica, and none is turned away; remove it, or jobs",
        ),
        (
            line.server.window_ms > 0,
            "window_ms",
            "a replica of so many jobs starts its batches at once; remove it, or jobs",
        ),
    )
    return next(((part, why) for wrong, part, why in problems if wrong), None)
