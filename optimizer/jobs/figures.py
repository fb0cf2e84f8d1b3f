"""Study that draws a system."""

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
    """Name and format of a figure, a change of the load, and options that override the document's."""

    kind: Annotated[str, Flag(only="route")] = Field("plan", json_schema_extra={"enum": list(FIGURES)})
    """One of the figures of `inferplan plot`."""
    format: AnswerFormat = "json"
    """The plotted numbers as JSON, or the picture."""
    server: Annotated[str | None, Flag("S")] = None
    """Server, for a figure that shows one."""
    accelerator: Annotated[str | None, Flag("A")] = None
    """Accelerator, for a figure that shows one server; default: the plan's, or all."""


@checks_documents
def show_figure(system: System, options: FigureOptions) -> Figure:
    """Return a picture, or the plotted numbers; without data, the answer states the reason.

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
