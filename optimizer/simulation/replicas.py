"""One replica under a load: as many runs as asked for, and what they amount to."""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import frozen
from optimizer.errors import AnalysisError
from optimizer.simulation.engine import Run, simulate
from optimizer.simulation.law import Coefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.lines import Line
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import LEAST_REQUESTS
from optimizer.simulation.workload import Load

DEFAULT_REQUESTS = 20_000
DEFAULT_SEED = 1
MOST_REQUESTS = 10_000_000
"""What a gigabyte or two of memory hold."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to simulate, and from which seed."""

    requests: int = DEFAULT_REQUESTS
    """Requests in each run."""
    runs: int = 1
    """Runs with seeds of their own; the interval of a single one comes from batch means."""
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        if not LEAST_REQUESTS <= self.requests <= MOST_REQUESTS:
            raise AnalysisError(
                f"requests: must be {LEAST_REQUESTS} or more and at most {MOST_REQUESTS}, not {self.requests}"
            )
        if self.runs < 1:
            raise AnalysisError(f"runs: must be 1 or more, not {self.runs}")
        if self.seed < 0:
            raise AnalysisError(f"seed: must be 0 or more, not {self.seed}")


def run_replica(
    load: Load, times: Coefficients, limits: Limits, effort: Effort, stream: int = 0
) -> list[Run]:
    """Run one replica under a load.

    Args:
        load: what is asked of it.
        times: its law.
        limits: its limits.
        effort: how much to simulate.
        stream: which of many replicas under the same seed; each has chances of its own.

    Raises:
        AnalysisError: an iteration would take no time, or a trace has too few requests.
    """
    seeds = np.random.SeedSequence(effort.seed, spawn_key=(stream,)).spawn(effort.runs)
    drawn = [load.draw(effort.requests, seed) for seed in seeds]
    if isinstance(times, Line):
        drawn = [_with_stages(requests, times, seed) for requests, seed in zip(drawn, seeds, strict=True)]
    fewest = min(map(len, drawn))
    if fewest < LEAST_REQUESTS:
        raise AnalysisError(
            f"{fewest} of the recorded requests come to a replica, and percentiles need {LEAST_REQUESTS}; "
            "record for longer"
        )
    return [simulate(requests, times, limits) for requests in drawn]


def _with_stages(requests: Requests, line: Line, seed: np.random.SeedSequence) -> Requests:
    """Return requests with the times that they take at the stages of a line, from chances of their own."""
    from optimizer.simulation.machine.passing import stage_times_ms

    (own,) = seed.spawn(1)
    times = stage_times_ms(line.stations, len(requests), np.random.default_rng(own))
    return replace(requests, stage_ms=frozen(times))
