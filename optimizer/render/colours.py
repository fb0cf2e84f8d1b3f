"""Colours of accelerator types, the same in pictures and on pages."""

from collections.abc import Iterable
from itertools import cycle

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#882255", "#999933", "#332288", "#8C564B", "#44AA99", "#AA4499",
)  # fmt: skip
"""Colours used only for accelerator types, in the order of their names: the colour-blind-safe palette of
Okabe and Ito without yellow, which is too light for lines, and then that of Tol.
"""


def type_colours(types: Iterable[str]) -> dict[str, str]:
    """Return a colour for each accelerator type, by its position; colours repeat after the last one."""
    return dict(zip(types, cycle(COLOURS), strict=False))
