"""A part of a report as plain text and tables; how it looks is decided elsewhere."""

from typing import NamedTuple


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    numeric: bool = True


class Section(NamedTuple):
    """A part of a report."""

    name: str
    """Short, for links."""
    title: str
    text: tuple[str, ...] = ()
    """Paragraphs."""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    picture: str = ""
    """Kind of the picture that belongs to it, if any."""
    alert: bool = False
    """Whether it must not be overlooked."""


class Fact(NamedTuple):
    """A figure that sums up a plan."""

    name: str
    value: str
    alert: bool = False
    """Whether it must not be overlooked."""
