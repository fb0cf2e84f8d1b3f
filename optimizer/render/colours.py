"""Colours of accelerator types, the same in pictures and on pages."""

from collections.abc import Iterable
from itertools import cycle

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#882255", "#999933", "#332288", "#8C564B", "#44AA99", "#AA4499",
)  # fmt: skip
"""Colours of accelerator types alone, in the order of the names: Okabe and Ito's, which
people with any colour vision can tell apart, without the yellow, which is too light for lines; then Tol's."""


def type_colours(types: Iterable[str]) -> dict[str, str]:
    """Return a colour for each accelerator type, by its place; after the last colour they begin again."""
    return dict(zip(types, cycle(COLOURS), strict=False))
