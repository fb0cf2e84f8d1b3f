"""Answers that print as the tables of their command, and figures that notebooks draw.

Answers are below the code that renders them, so the mixins load that by name, through the package.
"""

from html import escape
from importlib import import_module
from typing import Any

_PACKAGE = "optimizer"


class Printed:
    """Mixin of answers: `print` and notebooks show the tables of the command."""

    def __str__(self) -> str:
        """Return the tables of the command."""
        return str(_public("to_text")(self))

    def _repr_html_(self) -> str:
        """Return the tables of the command for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"


class Drawn:
    """Mixin of figures: notebooks show the picture."""

    def _repr_svg_(self) -> str:
        """Return the picture for a notebook."""
        picture: bytes = _public("draw")(self, "svg")
        return picture.decode()


def _public(name: str) -> Any:
    return getattr(import_module(_PACKAGE), name)
