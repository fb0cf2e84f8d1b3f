"""Changes or adds one item of a section in the text of a document, and leaves all other text unchanged.

Positions come from the nodes of the YAML parser, because writing the parsed document would reformat it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from optimizer.schema.files import WRAPPERS, Text
from optimizer.schema.yaml_format import yaml_flow, yaml_root, yaml_text

_STEP = 2
"""Indentation of new lines [characters]."""
_END_OF_ITEM = re.compile(r"(,?)(\s*(?:#.*)?)")
"""Pattern for an optional comma and an optional comment after an item at the end of a line in a bracketed
list.
"""


class _Edit(NamedTuple):
    """Replacement of the text from offset `start` to offset `end`."""

    start: int
    end: int
    text: str


class _Pair(NamedTuple):
    """A key of a mapping and its value, as YAML nodes."""

    key: Any
    value: Any

    @property
    def name(self) -> str:
        return str(self.key.value)

    @property
    def start(self) -> int:
        return int(self.key.start_mark.index)


def with_item(
    text: Text, section: str, item: Mapping[str, Any], old: tuple[int, Mapping[str, Any]] | None
) -> str:
    """Return the text of a document with a changed or added item.

    Args:
        text: a valid document.
        section: the section, by its wire name.
        item: the item in plain values.
        old: index and plain values of the item to replace; None: the item is added.

    Raises:
        SpecError: the text is JSON that is not valid YAML.
    """
    root = yaml_root(text.content)
    node = _section(root, section.lower())
    editor = _Editor(text)
    if node is None:
        edits = [editor.new_section(root, section, item)]
    elif old is None:
        edits = [editor.added(node, item)]
    else:
        edits = list(editor.changed(node.value[old[0]], old[1], item))
    content = text.content
    for edit in sorted(edits, reverse=True):
        content = content[: edit.start] + edit.text + content[edit.end :]
    return content


def _section(node: Any, name: str) -> Any:
    """Return the YAML node of a section, also inside a wrapper of llm-inferno; None if it is absent."""
    for key, value in node.value if node.id == "mapping" else ():
        if key.value.lower() == name:
            return value
        inside = _section(value, name) if key.value.lower() in WRAPPERS else None
        if inside is not None:
            return inside
    return None


class _Editor:
    """Creates edits of a document's text that keep its style."""

    def __init__(self, text: Text) -> None:
        self._content = text.content
        self._json = text.json_only
        self._newline = "\r\n" if "\r\n" in text.content else "\n"

    def changed(self, node: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[_Edit]:
        """Yield the edits that change a mapping; unchanged keys keep their order and comments.

        Args:
            node: YAML node of the mapping.
            old: its current values.
            new: its new values.
        """
        pairs = [_Pair(*pair) for pair in node.value]
        wanted = {key.lower(): key for key in new}
        kept = [pair for pair in pairs if pair.name.lower() in wanted]
        for pair in kept:
            yield from self._value(node, pair, old[pair.name], new[wanted.pop(pair.name.lower())])
        yield from self._removed(node, pairs, kept)
        if wanted:
            yield self._inserted(node, kept[-1], {key: new[key] for key in wanted.values()})

    def _value(self, node: Any, pair: _Pair, old: Any, new: Any) -> Iterator[_Edit]:
        if old == new:
            return
        both = isinstance(old, Mapping) and isinstance(new, Mapping)
        if both and {key.lower() for key in old} & {key.lower() for key in new}:
            yield from self.changed(pair.value, old, new)
        elif node.flow_style:
            yield _Edit(pair.value.start_mark.index, self._end(pair), self._flow(new))
        else:
            text = self._block({pair.name: new}, pair.key.start_mark.column)
            yield _Edit(pair.start, self._end(pair), text)

    def _removed(self, node: Any, pairs: Sequence[_Pair], kept: Sequence[_Pair]) -> Iterator[_Edit]:
        before: _Pair | None = None
        runs = [(stays, list(run)) for stays, run in groupby(pairs, lambda pair: pair in kept)]
        for i, (stays, run) in enumerate(runs):
            if stays:
                before = run[-1]
            elif before is None or (node.flow_style and i + 1 < len(runs)):
                yield _Edit(run[0].start, runs[i + 1][1][0].start, "")
            elif node.flow_style:
                yield _Edit(self._end(before), self._end(run[-1]), "")
            else:
                yield _Edit(self._line_end(run[0].start, -1), self._line_end(self._end(run[-1])), "")

    def _inserted(self, node: Any, last: _Pair, new: Mapping[str, Any]) -> _Edit:
        """Return the edit that adds keys to a mapping after the last key that is kept."""
        if node.flow_style:
            place = self._end(last)
            return _Edit(place, place, f", {self._flow(new)[1:-1]}")
        place, column = self._line_end(self._end(last)), last.key.start_mark.column
        return _Edit(place, place, self._line(column) + self._block(new, column))

    def added(self, node: Any, item: Mapping[str, Any]) -> _Edit:
        """Return the edit that appends an item to a list; the list can be empty or null."""
        items = node.value if node.id == "sequence" else ()
        if not items:
            start, end = node.start_mark.index, node.end_mark.index
            return _Edit(start, end, f"{'' if end > start else ' '}[{self._flow(item)}]")
        last = items[-1]
        end = self._node_end(last)
        if not node.flow_style:
            place, column = self._line_end(end), node.start_mark.column
            return _Edit(place, place, self._line(column) + self._block([item], column))
        begin, column, stop = last.start_mark.index, last.start_mark.column, self._line_end(end)
        behind = _END_OF_ITEM.fullmatch(self._content, end, stop)
        if behind is None or not self._content[begin - column : begin].isspace():
            return _Edit(end, end, f", {self._flow(item)}")
        new = self._flow(item, column if last.end_mark.line > last.start_mark.line else None)
        return _Edit(end, stop, f",{behind[2]}{self._line(column)}{new}{behind[1]}")

    def new_section(self, root: Any, section: str, item: Mapping[str, Any]) -> _Edit:
        """Return the edit that adds a section with one item at the end of a document."""
        if root.flow_style:
            return self._inserted(root, _Pair(*root.value[-1]), {section: [item]})
        column, length = root.start_mark.column, len(self._content)
        separator = "" if self._content.endswith("\n") else self._newline
        text = f"{separator}{self._line(column)}{self._block({section: [item]}, column)}{self._newline}"
        return _Edit(length, length, text)

    def _flow(self, value: object, column: int | None = None) -> str:
        """Return a value as text on one line; in JSON, indented at `column` if that is given."""
        if not self._json:
            return yaml_flow(value)
        text = json.dumps(value, ensure_ascii=False, indent=None if column is None else _STEP)
        return text.replace("\n", self._line(column or 0))

    def _block(self, value: object, column: int) -> str:
        """Return a mapping or list as lines of text; all lines but the first are indented to a column."""
        return yaml_text(value).rstrip().replace("\n", self._line(column))

    def _line(self, column: int) -> str:
        return self._newline + " " * column

    def _line_end(self, place: int, lines: int = 0) -> int:
        """Return the offset of the end of the line at `place`; with `lines` -1, of the previous line."""
        end = self._content.rfind("\n", 0, place) if lines else self._content.find("\n", place)
        end = len(self._content) if end < 0 else end
        return end - 1 if self._content[end - 1 : end + 1] == "\r\n" else end

    def _end(self, pair: _Pair) -> int:
        """Return the offset of the end of a pair's value, or of its colon if there is no value."""
        return max(self._node_end(pair.value), int(pair.key.end_mark.index) + 1)

    def _node_end(self, node: Any) -> int:
        """Return the offset of the end of a node, without trailing comments and empty lines."""
        if node.id == "mapping" and not node.flow_style:
            return self._end(_Pair(*node.value[-1]))
        if node.id == "sequence" and not node.flow_style:
            return self._node_end(node.value[-1])
        end = int(node.end_mark.index)
        while end > node.start_mark.index and self._content[end - 1].isspace():
            end -= 1
        return end
