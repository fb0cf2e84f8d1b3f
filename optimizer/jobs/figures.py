"""Study that draws figures of a system and its plan."""

from typing import Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import LoadChangeOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.figures.making import FIGURES, PLAN_FIGURES, make_figure


class FigureOptions(LoadChangeOptions):
    """Kind and format of a figure, a load change, and optimizer options that override the document's."""

    kind: Annotated[str, Flag(only="route")] = Field("plan", json_schema_extra={"enum": list(FIGURES)})
    """Kind of figure, as in `inferplan plot`."""
    format: AnswerFormat = "json"
    """Format of the response: the plotted numbers as JSON, or a picture."""
    server: Annotated[str | None, Flag("S")] = None
    """Name of the server, for figures of one server."""
    accelerator: Annotated[str | None, Flag("A")] = None
    """Name of the accelerator, for figures of one server; default: that of the plan, or all."""


@checks_documents
def show_figure(system: System, options: FigureOptions) -> Figure:
    """Return a picture, or the plotted numbers; if there is no data, the response states the reason.

    Raises:
        SpecError: a figure, a server or an accelerator does not exist, or does not fit the figure.
        SolverError: a plan was needed, and the solver failed.
    """
    for name in ("server", "accelerator"):
        if getattr(options, name) is not None and options.kind in PLAN_FIGURES:
            raise RequestError(name, f"{options.kind!r} shows all servers; remove it")
    after = options.with_changed_load(system)
    return make_figure(
        after,
        options.kind,
        server=options.server,
        accelerator=options.accelerator,
        before=None if after is system else system,
        backend=options.backend,
    )


STUDY = Study(
    title="Draw a plan or a replica",
    options=FigureOptions,
    answer=Figure,
    run=show_figure,
    media_types=PICTURE_TYPES,
    page=drawn(lambda figure: figure),
)
