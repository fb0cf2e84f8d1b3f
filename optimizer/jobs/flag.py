"""Command-line details of the fields of requests."""

from dataclasses import dataclass
from typing import Literal

from pydantic.fields import FieldInfo

from optimizer.units import Scale


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line details of a request's field; the field also determines type, limits and choices."""

    metavar: str | None = None
    """Placeholder of the value in the help text; None derives it from the name."""
    scale: Scale | None = None
    """Units that a number can have on the command line; None allows plain numbers only."""
    help: str = ""
    """Help text if it differs from the field's description."""
    off: str = ""
    """For a Boolean field: name of the flag that sets it to false, a colon, and the help of that flag."""
    name: str = ""
    """Name of the flag if it differs from that of the field."""
    short: str = ""
    """Short form of the flag, such as ``-F``."""
    const: str | None = None
    """Value of the field if the flag is given without a value; None if the flag requires a value."""
    positional: bool = False
    """Whether the field is a positional argument before the system instead of a flag."""
    separated: bool = False
    """Whether one flag contains all items of a tuple, separated by commas, instead of one flag for each."""
    only: Literal["", "command", "route"] = ""
    """Restriction of the field: `command` for the command line and Python only (files and programs of this
    machine), `route` for HTTP routes and clients only; empty for none.
    """


def details_of(field: FieldInfo) -> Flag | None:
    """Return the command-line details of a field; None if it has none."""
    return next((item for item in field.metadata if isinstance(item, Flag)), None)
