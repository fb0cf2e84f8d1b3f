"""The study that plans loads by the hour: what to reserve, and what to rent."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import ExactOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.spec.load_traces import LoadStep, read_load_trace
from optimizer.spec.system import System
from optimizer.studies.horizon.document import Horizon
from optimizer.studies.horizon.figure import horizon_figure
from optimizer.studies.horizon.horizon import plan_horizon
from optimizer.studies.load_changes import scale_loads

if TYPE_CHECKING:
    from optimizer.section import Section

MOST_HOURS = 1_000
"""Most hours whose loads can be given as factors: six weeks."""
SECONDS_PER_H = 3600.0
Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class HorizonOptions(ExactOptions):
    """Loads by the hour, and options that override the document's."""

    factors: tuple[Factor, ...] = Field((), max_length=MOST_HOURS)
    """Factors on all loads of the system, one for each hour."""
    format: AnswerFormat = "json"
    """The numbers as JSON, or a picture."""


def horizon_of(system: System, trace: str | Path | None = None, factors: Sequence[float] = ()) -> Horizon:
    """Plan the reservations for a whole trace and the rentals of each hour.

    Args:
        system: the fleet; committed tiers of its accelerators are offers of reserved ones.
        trace: a CSV file of loads over time, each from its time until the next.
        factors: in place of a trace, factors on all loads, one for each hour.

    Raises:
        SpecError: the file cannot be read, or its loads are not of the system.
        RequestError: loads are given twice, or not at all.
        SolverError: the solver failed.
    """
    if (trace is None) == (not factors):
        problem = "give the loads by the hour, either as {trace} or as {factors}"
        raise RequestError("factors" if factors else "trace", problem)
    if trace is not None:
        return plan_horizon(system, read_load_trace(system, trace))
    if len(factors) < 2:
        raise RequestError("factors", "at least two hours are needed, this has 1")
    scaled = (scale_loads(system, factor).servers for factor in factors)
    return plan_horizon(system, [LoadStep(h * SECONDS_PER_H, loads) for h, loads in enumerate(scaled)])


def _horizon(system: System, options: HorizonOptions) -> Horizon:
    """Plan loads by the hour: what to reserve for the whole time, and what to rent in each hour.

    A committed tier of an accelerator is an offer of 0 to `units` accelerators. The answer has a lower bound
    of the cost, and simple policies beside the plan. A long trace can need more time than the service allows
    a request.
    """
    return horizon_of(system, factors=options.factors)


def _sections(found: Horizon) -> "list[Section]":
    from optimizer.render.horizon_sections import horizon_sections

    return horizon_sections(found)


STUDY = Study(
    title="Plan loads by the hour",
    options=HorizonOptions,
    answer=Horizon,
    run=_horizon,
    sections=_sections,
    table_names=("policies", "reservations", "hours"),
    media_types=PICTURE_TYPES,
    page=drawn(horizon_figure),
)
