"""Finds the line and column of locations such as ``("servers", 3, "model")`` in the text of a document.

This parses the text a second time, so it is used only for documents with faults.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from optimizer.schema.yaml_format import yaml_root

Location = tuple[int | str, ...]
"""Location of a value in a document: the keys and list indices that lead to it."""
Position = tuple[int, int]
"""Line and column in a text, both counted from 1."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def find_positions(
    text: str, locations: Iterable[Location], wrappers: Collection[str], *, json_only: bool
) -> dict[Location, Position]:
    """Return the positions of keys and items in a document; for missing ones, the position of their parent.

    Args:
        text: a valid document.
        locations: the locations; keys match in any case.
        wrappers: lower-case keys around the sections, which locations omit.
        json_only: whether the text is JSON.
    """
    wanted = {location: _lower(location) for location in locations}
    prefixes = {path[:end] for path in wanted.values() for end in range(len(path) + 1)}
    if json_only:
        offsets = dict(_json_offsets(text, prefixes, wrappers, set(wanted.values())))
        lines = _lines(text)
        positions = {path: _position(lines, offset) for path, offset in offsets.items()}
    else:
        root = yaml_root(text)
        positions = (
            {} if root is None else {(): _mark(root), **dict(_yaml_marks(root, (), prefixes, wrappers))}
        )
    return {
        location: positions[nearest]
        for location, path in wanted.items()
        if (nearest := _nearest(path, positions)) is not None
    }


def duplicate_key(text: str) -> tuple[str, Position] | None:
    """Return the first key that occurs twice in an object of JSON text, with its position.

    None if there is none.
    """
    seen: list[set[int | str]] = []
    for path, offset in islice(_json_values(text), 1, None):  # the first value is the whole text
        del seen[len(path) :]
        if len(seen) < len(path):
            seen.append(set())
        if path[-1] in seen[-1]:
            return str(path[-1]), _position(_lines(text), offset)
        seen[-1].add(path[-1])
    return None


def _lower(location: Location) -> Location:
    return tuple(step if isinstance(step, int) else step.lower() for step in location)


def _nearest(path: Location, found: Mapping[Location, object]) -> Location | None:
    """Return the longest prefix of a path that is in `found`; None if there is none."""
    return next((path[:end] for end in range(len(path), -1, -1) if path[:end] in found), None)


def _inside(path: Location, step: int | str, wrappers: Collection[str]) -> Location:
    """Return the location of the value of a key or an item; the key of a wrapper adds nothing to the path."""
    lower = step if isinstance(step, int) else step.lower()
    if (not path and lower in wrappers) or (path == ("optimizer",) and lower == "optimizer"):
        return path
    return (*path, lower)


def _lines(text: str) -> list[int]:
    """Return the offsets at which the lines of a text begin."""
    return [0, *(end.end() for end in re.finditer("\n", text))]


def _position(lines: Sequence[int], offset: int) -> Position:
    line = bisect_right(lines, offset)
    return line, offset - lines[line - 1] + 1


def _mark(node: Any) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _yaml_marks(
    node: Any, path: Location, prefixes: Collection[Location], wrappers: Collection[str]
) -> Iterator[tuple[Location, Position]]:
    """Yield the positions of keys and items in YAML on the paths to the requested locations.

    Args:
        node: the PyYAML node at `path`.
        path: location of the node.
        prefixes: the requested locations and all their prefixes.
        wrappers: lower-case keys that add nothing to a location.
    """
    if node.id == "mapping":
        steps = [(_inside(path, str(key.value), wrappers), key, value) for key, value in node.value]
    elif node.id == "sequence":
        steps = [((*path, i), item, item) for i, item in enumerate(node.value)]
    else:
        steps = []
    for inner, shown, value in steps:
        if inner in prefixes:
            if inner != path:
                yield inner, _mark(shown)
            yield from _yaml_marks(value, inner, prefixes, wrappers)


def _json_offsets(
    text: str, prefixes: Collection[Location], wrappers: Collection[str], missing: set[Location]
) -> Iterator[tuple[Location, int]]:
    """Yield the offsets of keys and items in JSON on the paths to the requested locations.

    Args:
        text: the JSON text.
        prefixes: the requested locations and all their prefixes.
        wrappers: lower-case keys that add nothing to a location.
        missing: the locations still to find; the search ends when it is empty.
    """
    around: list[Location] = []
    for path, offset in _json_values(text):
        if not missing:
            return
        del around[len(path) :]
        if len(around) < len(path):
            continue  # inside of a value that is not requested
        here = _inside(around[-1], path[-1], wrappers) if path else ()
        if here in prefixes:
            around.append(here)
            yield here, offset
            missing.discard(here)


_KEY_FOLLOWS = -1


def _json_values(text: str) -> Iterator[tuple[Location, int]]:
    """Yield the location of each value in JSON text, and the offset of its key, or of itself in a list."""
    path: list[int | str] = []
    start = 0
    for token in _TOKEN.finditer(text):
        word, step = token.group(), path[-1] if path else 0
        if word in "}]":
            path.pop()
        elif word == ",":
            path[-1] = step + 1 if isinstance(step, int) else _KEY_FOLLOWS
        elif step == _KEY_FOLLOWS:
            path[-1], start = word[1:-1], token.start()
        elif word != ":":
            yield tuple(path), start if isinstance(step, str) else token.start()
            if word in "{[":
                path.append(_KEY_FOLLOWS if word == "{" else 0)
