"""Pictures as answers of studies, in the formats that routes and commands offer."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from optimizer.jobs.flag import Flag
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import Figure

Answer = TypeVar("Answer")
AnswerFormat = Annotated[Literal["json", "svg", "png", "pdf"], Flag(only="route")]
PICTURE_TYPES: Mapping[str, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
"""Media types of pictures by format."""


def drawn(figure_of: Callable[[Answer], Figure]) -> Callable[[Answer, System, Any], bytes]:
    """Return the page writer of a study whose pages are pictures of its answer."""

    def page(answer: Answer, _: System, options: Any) -> bytes:
        from optimizer.render.plots import draw

        return draw(figure_of(answer), options.format)

    return page
