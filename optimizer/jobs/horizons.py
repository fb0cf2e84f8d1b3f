"""Study that plans hourly loads: accelerators to reserve, and accelerators to rent in each hour."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import ExactOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.render.horizon_sections import horizon_sections
from optimizer.schema import Route
from optimizer.spec.arguments import checks_documents
from optimizer.spec.load_traces import LoadStep, read_load_trace
from optimizer.spec.loads import load_names, loaded, rate_rpm, stated_loads, with_rate
from optimizer.spec.system import System
from optimizer.studies.horizon.horizon import plan_horizon
from optimizer.studies.horizon.horizon_document import Horizon
from optimizer.studies.horizon.horizon_figure import horizon_figure
from optimizer.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from optimizer.schema import Server

MAX_HOURS = 1_000
"""Maximum number of hours in a request, six weeks."""
MAX_SERVERS = 1_000
"""Maximum number of servers whose loads can be given by the hour."""
Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class HorizonOptions(ExactOptions):
    """Hourly loads, and optimizer options that override the document's."""

    trace: Annotated[str | Path | None, Flag("FILE", only="command")] = None
    """CSV file of hourly loads."""
    factors: Annotated[tuple[Factor, ...], Flag("F,F,…", separated=True)] = Field((), max_length=MAX_HOURS)
    """Factors on all loads of the system, one for each hour; offline work keeps its number of requests."""
    loads: Annotated[tuple[Annotated[str, Field(max_length=20_000)], ...], Flag(only="route")] = Field(
        (), max_length=MAX_SERVERS
    )
    """Instead of factors, loads of single servers: NAME=RATE,RATE,… [requests/min], with one rate for each
    hour. Other servers keep their load.
    """
    format: AnswerFormat = "json"
    """Format of the response: the numbers as JSON, or a picture."""


@checks_documents
def horizon_of(system: System, options: HorizonOptions) -> Horizon:
    """Plan hourly loads: accelerators to reserve for all hours, and accelerators to rent in each hour.

    Up to `units` accelerators of each committed tier can be reserved. The response contains a lower bound of
    the cost, and simple policies for comparison. Loads are factors on all loads, or rates of single servers.
    A long trace can need more time than the service allows for a request.

    Raises:
        SpecError: the file cannot be read, or the system has no server with its loads.
        RequestError: loads are given in several ways, or not at all.
        SolverError: the solver failed.
    """
    given = [name for name in ("trace", "factors", "loads") if getattr(options, name)]
    if len(given) != 1:
        several = options.trace or not options.loads
        wanted = "{trace} or as {factors}" if several else "{factors} or as {loads}"
        raise RequestError(given[0] if given else "trace", f"give the loads by the hour, either as {wanted}")
    if options.trace is not None:
        return plan_horizon(system, read_load_trace(system, options.trace))
    steps = _scaled(system, options.factors) if options.factors else _loaded(system, options.loads)
    if len(steps) < 2:
        raise RequestError(given[0], "at least two hours are needed, this has 1")
    return plan_horizon(system, steps)


def _scaled(system: System, factors: Sequence[float]) -> list[LoadStep]:
    """Return the loads of each hour: those of the system times a factor; offline work is unchanged."""
    loads = [one for one in stated_loads(system) if isinstance(one, Route) or one.deadline is None]
    return [
        LoadStep.of(system, h * SECONDS_PER_HOUR, [with_rate(one, rate_rpm(one) * factor) for one in loads])
        for h, factor in enumerate(factors)
    ]


def _loaded(system: System, loads: Sequence[str]) -> list[LoadStep]:
    """Return the loads of each hour from texts NAME=RATE,RATE,… of servers and routes."""
    hours: list[dict[str, Server | Route]] = []
    for text in loads:
        name, _, rates = text.rpartition("=")
        parts = rates.split(",")
        if name not in load_names(system):
            raise RequestError(
                "loads", f"{text[:40]!r}: server {name!r} does not exist; give NAME=RATE,RATE,…"
            )
        hours = hours or [{} for _ in parts]
        if len(parts) != len(hours) or len(parts) > MAX_HOURS:
            wanted = (
                f"{len(hours)}, as many as the first" if len(parts) != len(hours) else f"at most {MAX_HOURS}"
            )
            raise RequestError("loads", f"server {name!r} has {len(parts)} rates; give {wanted}")
        if name in system.documented and system.documented[name].deadline is not None:
            raise RequestError("loads", f"server {name!r} has a deadline, which sets its load; remove it")
        if name in hours[0]:
            raise RequestError("loads", f"server {name!r} is given twice; give it once")
        for h, part in enumerate(parts):
            hours[h][name] = loaded(system, name, {"arrivalRate": part}, f"loads: {name}: hour {h}")
    return [LoadStep.of(system, h * SECONDS_PER_HOUR, hour.values()) for h, hour in enumerate(hours)]


STUDY = Study(
    title="Plan loads by the hour",
    options=HorizonOptions,
    answer=Horizon,
    run=horizon_of,
    sections=horizon_sections,
    table_names=("policies", "reservations", "hours"),
    media_types=PICTURE_TYPES,
    page=drawn(horizon_figure),
    working="planning hours",
    epilog=(
        "The trace has the columns of replay: time, server and arrivalRate, or time and a column of rates "
        "for each server; each load lasts until the next. From each committed tier, any number of "
        "accelerators up to its units can be reserved, for the entire time."
    ),
)
