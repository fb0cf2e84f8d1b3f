"""Colours of accelerator types, the same in figures and on web pages."""

from collections.abc import Iterable
from itertools import cycle

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#882255", "#999933", "#332288", "#8C564B", "#44AA99", "#AA4499",
)  # fmt: skip
"""Colours of accelerator types, assigned in the order of the type names and used for nothing else. The first
ones are the colour-blind-safe palette of Okabe and Ito without yellow, which is too light for lines; the
others are that of Tol.
"""


def type_colours(types: Iterable[str]) -> dict[str, str]:
    """Assign `COLOURS` to accelerator types in the given order, repeating them if there are more types."""
    return dict(zip(types, cycle(COLOURS), strict=False))
