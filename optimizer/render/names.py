"""Shortens long names to a width so that different names stay different.

The names of a table or figure are shortened together: parts that few names have are kept, and parts that most
names have are omitted.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count, groupby
from os.path import commonprefix

Size = Callable[[str], float]
"""Function that measures the width of a text, in the unit of the width limit."""
GAP = "…"
"""Placeholder for omitted text."""
_PART = re.compile(r"\d+ x |\d+x(?=[A-Za-z])|[^-_/:, ]+[-_/:, ]*|[-_/:, ]+")
"""Pattern for the parts of a name; each includes the separator after it, and a count belongs to its noun."""
MIN_FIRST_PART_LETTERS = 3
"""Minimum number of letters kept of a name's first part."""
_JOINTS = "-_/:, "


def shortened(names: Iterable[str], limit: float, size: Size = len) -> dict[str, str]:
    """Return the displayed form of each name: the full name if it fits, else parts of it joined by ….

    No two names have the same displayed form.

    Args:
        limit: maximum width of a displayed name, in the unit of `size`.
        size: function that measures the width of a text; default: the number of characters.
    """
    whole = list(dict.fromkeys(names))
    result = {name: name for name in whole if not name or size(name) <= limit}
    common = Counter(part for name in whole for part in {match[0] for match in _parts(name)})
    long = [name for name in whole if name not in result]
    result |= {name: _by_parts(name, common, limit, size) for name in long}
    for group in _alike(long, result):
        place = len(commonprefix(group))  # noqa: RUF071  of letters, not of folders
        result |= {name: _around(name, place, limit, size) for name in group}
    for group in _alike(long, result):
        taken = {shown for name, shown in result.items() if name not in group}
        for name in group:
            result[name] = _numbered(name, limit, size, taken)
            taken.add(result[name])
    return result


def _parts(name: str) -> Iterator[re.Match[str]]:
    return _PART.finditer(name)


def _alike(long: Iterable[str], shortened: dict[str, str]) -> list[list[str]]:
    """Return groups of names that share a displayed form; displayed names that fit are excluded."""
    taken = {shown for name, shown in shortened.items() if name == shown}
    order = sorted(long, key=lambda name: shortened[name])
    groups = [list(group) for _, group in groupby(order, key=lambda name: shortened[name])]
    return [group for group in groups if len(group) > 1 or shortened[group[0]] in taken - {group[0]}]


def _shown(name: str, kept: Iterable[int]) -> str:
    """Return the kept characters of a name, with … for omitted ones; no … starts at a separator.

    Args:
        kept: indices of the kept characters.
    """
    pieces, last = list[str](), -1
    for _, run in groupby(enumerate(sorted(kept)), key=lambda pair: pair[1] - pair[0]):
        places = [place for _, place in run]
        piece = name[places[0] : places[-1] + 1]
        if places[0] > last + 1:
            pieces.append(GAP)
            piece = piece.lstrip(_JOINTS) or piece
        if places[-1] < len(name) - 1:
            piece = piece.rstrip(_JOINTS) or piece
        pieces.append(piece)
        last = places[-1]
    return "".join(pieces) + (GAP if last < len(name) - 1 else "")


def _by_parts(name: str, common: Counter[str], limit: float, size: Size) -> str:
    """Shorten a name by omitting parts that most other names have; its ends are kept before its middle."""
    parts = [match[0] for match in _parts(name)]
    spans = [range(*match.span()) for match in _parts(name)]
    counts = [common[part] for part in parts]
    # Parts that occur in fewer names than this.
    telling = max(counts) if min(counts) < max(counts) else max(counts) + 1
    kept, shown = set[int](), ""
    open_parts = set(range(len(parts)))
    while open_parts:
        beside = {i for i in open_parts if {spans[i].start - 1, spans[i].stop} & kept}
        rare = {i for i in open_parts if i == 0 or counts[i] < telling}
        rank = {i: (i not in rare, counts[i], min(i, len(parts) - 1 - i)) for i in open_parts}
        telling_most = {i for i in rare if counts[i] == min(counts) < telling} if not kept else set[int]()
        best = min(telling_most or rare or beside or open_parts, key=rank.__getitem__)
        open_parts.remove(best)
        least = (
            MIN_FIRST_PART_LETTERS if best == 0 else len(spans[best])
        )  # a few letters of the first part suffice
        for end in range(len(spans[best]), min(least, len(spans[best])) - 1, -1):
            text = _shown(name, kept | set(spans[best][:end]))
            if size(text) <= limit:
                kept, shown = kept | set(spans[best][:end]), text
                break
    return shown if 2 * size(shown) > limit else _around(name, len(name), limit, size)


def _around(name: str, place: int, limit: float, size: Size) -> str:
    """Shorten a name to its start, its end and the part at an index, as far as they fit."""
    for most in range(len(name), 0, -1):
        third = most // 3
        middle = range(max(place - third // 4, 0), min(place - third // 4 + third, len(name)))
        begin, end = range(most - third - len(middle)), range(len(name) - third, len(name))
        text = _shown(name, {*begin, *middle, *end})
        if size(text) <= limit:
            return text
    return GAP


def _numbered(name: str, limit: float, size: Size, taken: Collection[str]) -> str:
    """Shorten a name to its start plus the first number that makes it unique."""
    for number in count(1):
        ends = (f"{name[:end]}{GAP}{number}" for end in range(len(name), -1, -1))
        text = next((text for text in ends if size(text) <= limit), f"{GAP}{number}")
        if text not in taken:
            return text
    raise AssertionError
