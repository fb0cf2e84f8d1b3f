"""Draws the results of studies as pictures, in the formats of routes and commands."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from optimizer.jobs.flag import Flag
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import Figure

Answer = TypeVar("Answer")
AnswerFormat = Annotated[Literal["json", "svg", "png", "pdf"], Flag(only="route")]
PICTURE_TYPES: Mapping[str, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
"""Media type of each picture format."""


def drawn(figure_of: Callable[[Answer], Figure]) -> Callable[[Answer, System, Any], bytes]:
    """Return the `Study.page` function of a study whose result is drawn as a picture."""

    def page(answer: Answer, _: System, options: Any) -> bytes:
        from optimizer.render.plots import draw

        return draw(figure_of(answer), options.format)

    return page
