"""Command-line details of the fields of models."""

from dataclasses import dataclass
from typing import Literal

from pydantic.fields import FieldInfo

from optimizer.units import Scale


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line details of a field; the flag's type, limits and choices follow from the field."""

    metavar: str | None = None
    """Placeholder of the value in help; None derives it from the name."""
    scale: Scale | None = None
    """Units that a number can have on the command line; None allows plain numbers only."""
    help: str = ""
    """Help text if it differs from the field's description."""
    off: str = ""
    """For a switch: the flag that sets it to false, and that flag's help after a colon."""
    name: str = ""
    """Name of the flag if it differs from that of the field."""
    short: str = ""
    """Short form: ``-F``."""
    const: str | None = None
    """Value if the flag is given without one; None if the flag requires a value."""
    positional: bool = False
    """Whether it is an argument before the system instead of a flag."""
    separated: bool = False
    """Whether one value contains all items, separated by commas."""
    only: Literal["", "command", "route"] = ""
    """Where the field exists: on the command line and in Python, for files and programs of this machine; in
    routes and clients; or, if empty, everywhere."""


def details_of(field: FieldInfo) -> Flag | None:
    """Return the command-line details of a field; None if it has none."""
    return next((item for item in field.metadata if isinstance(item, Flag)), None)
