"""Document fields for pools by prompt length."""

from operator import not_
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from optimizer.documents import Document, Name, is_none

PoolsByLength = Literal["never", "allowed", "required"]


def _none_if_never(value: PoolsByLength | None) -> PoolsByLength | None:
    return None if value == "never" else value


class LengthPoolsField(Document):
    """Whether the request shapes of a server can have separate pools."""

    pools_by_length: Annotated[PoolsByLength | None, AfterValidator(_none_if_never)] = Field(
        None, alias="poolsByLength", exclude_if=is_none
    )
    """Whether the plan can (`allowed`) or must (`required`) divide the shapes of the load, in the order of
    their prompt lengths, among several pools, each with its own accelerators, replicas and batch limits. The
    router needs only the prompt length. Default: `never`.
    """


class PoolShapesField(Document):
    """The request shapes of a current pool."""

    shapes: tuple[Name, ...] = Field((), exclude_if=not_, strict=False)
    """Names of the request shapes that the pool serves, if the server has pools by length; absent: all."""
