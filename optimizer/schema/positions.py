"""Finds the line and column of locations such as ``("servers", 3, "model")`` in the text of a document.

This parses the text a second time, so it is used only for documents with faults.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
        found = {path: _position(lines, offset) for path, offset in offsets.items()}
    else:
        root = yaml_root(text)
        found = {} if root is None else {(): _mark(root), **dict(_yaml_marks(root, (), prefixes, wrappers))}
    return {
        location: found[nearest]
        for location, path in wanted.items()
        if (nearest := _nearest(path, found)) is not None
    }


def duplicate_key(text: str) -> tuple[str, Position] | None:
    """Return the first key that occurs twice in an object of JSON text, with its position.

    None if there is none.
    """
    stack: list[set[str] | None] = []
    previous = None
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word in "{[":
            stack.append(set() if word == "{" else None)
        elif word in "}]":
            stack.pop()
        elif word == ":" and previous is not None and stack and (keys := stack[-1]) is not None:
            key = previous.group()[1:-1]
            if key in keys:
                return key, _position(_lines(text), previous.start())
            keys.add(key)
        previous = token
    return None


def _lower(location: Location) -> Location:
    return tuple(step if isinstance(step, int) else step.lower() for step in location)


def _nearest(path: Location, found: Mapping[Location, object]) -> Location | None:
    """Return the longest prefix of a path that is in `found`; None if there is none."""
    return next((path[:end] for end in range(len(path), -1, -1) if path[:end] in found), None)


def _inside(path: Location, key: str, wrappers: Collection[str]) -> Location:
    """Return the location of the value of a key; the key of a wrapper adds nothing to the path."""
    lower = key.lower()
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
    opened: list[_Opened] = []
    for token in _TOKEN.finditer(text):
        word = token.group()
        if not missing:
            return
        if word in "}]":
            opened.pop()
        elif word == ",":
            opened[-1].next()
        elif opened and opened[-1].wants_key:
            opened[-1].key = token
        elif word != ":":
            here, start = opened[-1].inner(token, wrappers) if opened else ((), token.start())
            here = here if here in prefixes else None
            if here is not None:
                yield here, start
                missing.discard(here)
            if word in "{[":
                opened.append(_Opened(here, is_list=word == "["))


class _Opened:
    """An object or list of JSON text that is not yet closed."""

    __slots__ = ("_index", "_is_list", "key", "location")

    def __init__(self, location: Location | None, *, is_list: bool) -> None:
        self.location = location
        self._is_list = is_list
        self._index = 0
        self.key: re.Match[str] | None = None

    @property
    def wants_key(self) -> bool:
        return not self._is_list and self.key is None

    def next(self) -> None:
        """Move to the next item after a comma."""
        self._index += 1
        self.key = None

    def inner(self, token: re.Match[str], wrappers: Collection[str]) -> tuple[Location | None, int]:
        """Return the location of a value and the offset of its key, or of the value itself in a list.

        The location is None if it was not requested.
        """
        start = token.start() if self.key is None else self.key.start()
        if self.location is None:
            return None, start
        if self.key is None:
            return (*self.location, self._index), start
        return _inside(self.location, self.key.group()[1:-1], wrappers), start
