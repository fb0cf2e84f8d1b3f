"""Stages around a batch server as documents: what every request passes before the batch, and after it.

The names of the stages live here; behind it they are numbers (`optimizer.simulation.tandem`).
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from optimizer.documents import Coefficient, Document, Milliseconds, Name, PositiveCount
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem

STAGE = "stage:"
"""What stands before the name of a stage that can serve the least."""
StagePlace = Literal["before", "after"]
"""Whether requests pass a stage before their batch, or after it."""


class Stage(Document):
    """A stage of a replica with workers of its own, each of which serves one request at a time."""

    name: Name
    """Unique name within the server."""
    place: StagePlace = Field(alias="where")
    """Whether requests pass it before their batch, or after it."""
    mean_ms: Milliseconds = Field(alias="time", gt=0)
    """Mean time of a request [ms]."""
    cv: Coefficient = 1.0
    """Coefficient of variation of that time, which is lognormal; 0: always the same."""
    workers: PositiveCount = 1
    """Requests that it serves at once."""

    @property
    def station(self) -> Station:
        """The stage as plain numbers."""
        return Station(self.place == "before", self.mean_ms, self.cv, self.workers)


def stations_of(stages: Sequence[Stage]) -> tuple[Station, ...]:
    """Return stages as plain numbers, in the order in which requests pass them."""
    return tuple(stage.station for place in ("before", "after") for stage in stages if stage.place == place)


def names_of(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return the names of stages in the same order."""
    return tuple(stage.name for place in ("before", "after") for stage in stages if stage.place == place)


def repeated_name(stages: Sequence[Stage]) -> str | None:
    """Return the first name that two stages share; none: they differ."""
    names = [stage.name for stage in stages]
    return next((name for i, name in enumerate(names) if name in names[:i]), None)


def slowest_part(line: Tandem, names: Sequence[str]) -> str | None:
    """Return what of a line can serve the least: the server, a stage by its name, or its number of jobs.

    Args:
        line: the line.
        names: of its stages, in their order.

    Returns:
        `server`, `stage:` and a name, or `jobs`; none without stages and jobs.
    """
    if line.is_server_alone:
        return None
    alone_ms = line.server.base_ms + line.server.slope_ms + sum(part.mean_ms for part in line.stations)
    if line.jobs != ALL_JOBS and line.jobs / alone_ms < line.most:
        return "jobs"
    return "server" if line.slowest is None else f"{STAGE}{names[line.slowest]}"
