"""Mixins for results that print as the tables of their command, and for figures that notebooks draw.

Modules of results must not import the rendering code, so the mixins import it when it is used.
"""

from html import escape
from importlib import import_module
from typing import Any

_PACKAGE = "optimizer"


class Printed:
    """Mixin of results: `print` and notebooks show the tables that the command prints."""

    def __str__(self) -> str:
        """Return the tables that the command prints, as text."""
        return str(_public("to_text")(self))

    def _repr_html_(self) -> str:
        """Return the tables that the command prints, as HTML for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"


class Drawn:
    """Mixin of figures: notebooks show the picture."""

    def _repr_svg_(self) -> str:
        """Return the picture as SVG for a notebook."""
        picture: bytes = _public("draw")(self, "svg")
        return picture.decode()


def _public(name: str) -> Any:
    return getattr(import_module(_PACKAGE), name)
