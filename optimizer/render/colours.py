"""Colours of accelerator types, the same in figures and on web pages."""

from collections import Counter
from collections.abc import Iterable

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
    "#882255", "#999933", "#332288", "#8C564B", "#44AA99", "#AA4499",
)  # fmt: skip
"""Colours of accelerator types, assigned in the order of the type names and used for nothing else. The first
ones are the colour-blind-safe palette of Okabe and Ito without yellow, which is too light for lines; the
others are that of Tol.
"""


STEP = 0.7
"""Factor on the distance to white or black of each further shade of a hue."""


def type_colours(types: Iterable[str]) -> dict[str, str]:
    """Assign different colours to accelerator types in the given order.

    Up to twelve types have the colours of `COLOURS`. Of more types, those with the same last part of the
    name, such as ``eu-H100`` and ``us-H100``, are shades of one hue, as are those beyond the number of hues.
    """
    names = list(types)
    if len(names) <= len(COLOURS):
        return dict(zip(names, COLOURS, strict=False))
    families = list(dict.fromkeys(name.rpartition("-")[2] for name in names))
    used, colours = Counter[int](), dict[str, str]()
    for name in names:
        hue = families.index(name.rpartition("-")[2]) % len(COLOURS)
        colours[name] = shade(COLOURS[hue], used[hue])
        used[hue] += 1
    return colours


def shade(colour: str, number: int) -> str:
    """Return a shade of a colour: 0 is the colour, odd numbers are lighter, and even numbers darker."""
    towards, kept = (255 if number % 2 else 0), STEP ** ((number + 1) // 2)
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(towards + (part - towards) * kept):02X}" for part in parts)
