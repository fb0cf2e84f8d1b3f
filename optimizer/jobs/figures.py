"""The study that draws a system."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import LoadChangeOptions, LoadScenario, RequestError
from optimizer.jobs.study import Study
from optimizer.spec.system import System
from optimizer.studies.figures.document import Figure
from optimizer.studies.figures.kinds import KINDS, PLAN_KINDS, make_figure


class FigureOptions(LoadChangeOptions):
    """Kind and format of a figure, a change of the load, and options that override the document's."""

    kind: str = Field("plan", json_schema_extra={"enum": list(KINDS)})
    """One of the kinds of `inferplan plot`."""
    format: AnswerFormat = "json"
    """The plotted numbers as JSON, or the picture."""
    server: Annotated[str | None, Flag("S")] = None
    """Server, for a kind that shows one."""
    accelerator: Annotated[str | None, Flag("A")] = None
    """Accelerator, for a kind that shows one server; default: the plan's, or all."""


@dataclass(frozen=True, slots=True)
class FigureRequest:
    """A figure of a system, optionally after a change of its load."""

    system: System
    kind: str
    server: str | None = None
    accelerator: str | None = None
    load: LoadScenario = field(default_factory=LoadScenario)
    backend: str = "highs"


def show_figure(request: FigureRequest) -> Figure:
    """Return a figure as data; after a change of the load it also has the plan before the change.

    Raises:
        SpecError: a kind, a server or an accelerator does not exist, or does not go with the kind.
        SolverError: a plan was needed, and the solver failed.
    """
    for name in ("server", "accelerator"):
        if getattr(request, name) is not None and request.kind in PLAN_KINDS:
            raise RequestError(name, f"{request.kind!r} shows all servers; remove it")
    after = request.load.applied_to(request.system)
    return make_figure(
        after,
        request.kind,
        server=request.server,
        accelerator=request.accelerator,
        before=None if after is request.system else request.system,
        backend=request.backend,
    )


def _figure(system: System, options: FigureOptions) -> Figure:
    """Return a picture, or the plotted numbers; if there is nothing to plot, the answer explains why."""
    request = FigureRequest(system, options.kind, options.server, options.accelerator, options.scenario())
    return show_figure(request)


STUDY = Study(
    title="Draw a plan or a replica",
    options=FigureOptions,
    answer=Figure,
    run=_figure,
    media_types=PICTURE_TYPES,
    page=drawn(lambda figure: figure),
    operations=("draw_figure", "draw_held"),
)
