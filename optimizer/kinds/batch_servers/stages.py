"""Document fields for the stages before and after the batch of a batch server.

Only this module uses names of stages; queue models and simulation use numbers
(`optimizer.simulation.tandem`).
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from optimizer.documents import Coefficient, Document, Milliseconds, Name, PositiveCount
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem

STAGE = "stage:"
"""Prefix of a stage's name in the field for the bottleneck."""
StagePlace = Literal["before", "after"]
"""Position of a stage relative to the batch."""


class Stage(Document):
    """A processing stage of a batch server, with an unlimited queue and its own workers in every replica.

    Requests pass the stages on the same side of the batch in the order of the list.
    """

    name: Name
    """Name of the stage, unique within the server."""
    place: StagePlace = Field(alias="where")
    """Position relative to the batch: `before` or `after`."""
    mean_ms: Milliseconds = Field(alias="time", gt=0)
    """Mean service time of a request in the stage [ms], more than 0."""
    cv: Coefficient = 1.0
    """Coefficient of variation of the service time, which is lognormal; 0 for a constant time."""
    workers: PositiveCount = 1
    """Number of workers; each serves one request at a time."""


def in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Sort stages in processing order."""
    return sorted(stages, key=lambda stage: stage.place == "after")


def stations_of(stages: Sequence[Stage]) -> tuple[Station, ...]:
    """Convert stages to the form of the queue model and the simulator, in processing order."""
    return tuple(
        Station(stage.place == "before", stage.mean_ms, stage.cv, stage.workers) for stage in in_order(stages)
    )


def names_problem(stages: Sequence[Stage]) -> tuple[str, str] | None:
    """Return the key of the stages, and a message that two have the same name; None if all names differ."""
    names = [stage.name for stage in stages]
    for i, name in enumerate(names):
        if name in names[:i]:
            return "stages", f"two stages have the name {name!r}; give each its own name"
    return None


def slowest_part(line: Tandem, stages: Sequence[Stage]) -> str | None:
    """Return the bottleneck of a batch server with stages.

    Args:
        line: the server and its stages.
        stages: its stages in the document.

    Returns:
        `server`, `stage:` and a name, or `jobs`; None without stages and jobs.
    """
    if line.is_server_alone:
        return None
    alone_ms = line.server.base_ms + line.server.slope_ms + sum(part.mean_ms for part in line.stations)
    if line.jobs != ALL_JOBS and line.jobs / alone_ms < line.most:
        return "jobs"
    return "server" if line.slowest is None else f"{STAGE}{in_order(stages)[line.slowest].name}"
