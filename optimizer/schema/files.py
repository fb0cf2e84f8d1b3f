"""Reads documents from files: YAML or JSON, from one file, a directory or standard input.

Each document becomes a `Part`, which also has its text. Duplicate keys are errors in both formats.
"""

import io
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from optimizer.documents import FOLDER, WRITTEN_BY_HAND
from optimizer.errors import SpecError, reason_of
from optimizer.schema import SystemSpec
from optimizer.schema.faults import (
    MAX_FAULTS,
    Fault,
    FaultyDocumentsError,
    Sound,
    document_problems,
    sound_part,
)
from optimizer.schema.messages import json_type, path_text, unknown_key, validated
from optimizer.schema.positions import Location, duplicate_key, find_positions
from optimizer.schema.recognition import answer_name
from optimizer.schema.samples import sample_or_path
from optimizer.schema.yaml_format import yaml_value

SUFFIXES = (".yaml", ".yml", ".json")
MAX_YAML_BYTES = 8 * 2**20
MAX_JSON_BYTES = 64 * 2**20
MAX_WRAPPERS = 3
"""Maximum number of nested wrappers around the sections in documents of llm-inferno: system, optimizerData,
optimizer.
"""

WRAPPERS = {
    "system",
    "acceleratordata",
    "modeldata",
    "serviceclassdata",
    "serverdata",
    "capacitydata",
    "optimizerdata",
}
"""Keys that wrap the sections of a document in llm-inferno (docs/glossary.md), in lower case."""
SECTIONS = {
    (field.alias or name).lower(): field.alias or name for name, field in SystemSpec.model_fields.items()
}
"""Keys of the sections of a document, by their lower case."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a document and its source: a file name, or empty for text in memory."""

    content: str
    source: str = ""
    json_only: bool = False
    """Whether the text is JSON; otherwise it is YAML."""
    folder: Path | None = None
    """Folder to which file names in the document are relative; None if the document must not name files."""

    @property
    def context(self) -> dict[str, object]:
        """Validation context for documents of this text."""
        return WRITTEN_BY_HAND | ({} if self.folder is None else {FOLDER: self.folder})

    def value(self) -> object:
        """Parse the text to plain values.

        Raises:
            SpecError: the text is invalid in its format.
        """
        if self.json_only:
            return json_value(self.content, self.source)
        if len(self.content) > MAX_YAML_BYTES:
            raise SpecError(f"{self.source}: over the limit of {MAX_YAML_BYTES >> 20} MiB for YAML; use JSON")
        return yaml_value(self.content, self.source)

    def faults(self, problems: Sequence[tuple[Location, str]]) -> list[Fault]:
        """Convert problems at locations of the text to faults with line and column."""
        locations = [location for location, _ in problems]
        positions = find_positions(self.content, locations, WRAPPERS, json_only=self.json_only)
        return [Fault(at, problem, self.source, positions.get(at)) for at, problem in problems]


@dataclass(frozen=True, slots=True)
class Part:
    """A document and its text; the text is None for a value in memory."""

    spec: SystemSpec
    text: Text | None = None
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each section, the index in the text of each item of the document. Default: the same indices."""
    repaired: frozenset[Location] = frozenset()
    """Locations of items that lack their invalid parts, so that their meaning is unknown."""

    @property
    def source(self) -> str:
        """Name of the document's file; empty for a value in memory."""
        return "" if self.text is None else self.text.source

    def location(self, section: str, item: int) -> Location:
        """Return the location in the text of an item of a section."""
        return section, self.kept[section][item] if section in self.kept else item

    def faults(self, problems: Sequence[tuple[Location, str]]) -> list[Fault]:
        """Convert problems at locations of the document to faults, with line and column if it has a text."""
        if self.text is None:
            return [Fault(location, problem) for location, problem in problems]
        return self.text.faults(problems)


def read_parts(path: str | os.PathLike[str]) -> list[Part]:
    """Read the documents of a file, of all document files in a directory, or of standard input (``-``).

    Raises:
        SpecError: the path does not exist, cannot be read or parsed, or a document breaks the schema.
    """
    texts = map(read_document, document_files(path))
    return [part_of(text, text.value()) for text in texts]


def document_files(path: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the given path if it is a file, else the document files in the directory.

    Raises:
        SpecError: the path does not exist, or the directory has no document file.
    """
    if str(path) == "-":
        return [path]
    if not str(path):
        raise SpecError("'': an empty path; name a file, or '.' for the current directory")
    root = Path(sample_or_path(path))
    with _refusing(root):
        if not stat.S_ISDIR(root.stat().st_mode):
            return [root]
        entries = sorted(entry for entry in root.iterdir() if entry.suffix.lower() in SUFFIXES)
    files: list[str | os.PathLike[str]] = []
    for entry in entries:
        if entry.name.startswith(".") and not entry.exists():
            continue  # an editor's lock
        with _refusing(entry):  # a broken link is an error: its document must not be ignored
            if stat.S_ISREG(entry.stat().st_mode):
                files.append(entry)
    if not files:
        raise SpecError(f"{root}: the directory has no {', '.join(SUFFIXES)} file")
    return files


def read_document(path: str | os.PathLike[str]) -> Text:
    """Read a document file, or standard input for ``-``.

    Raises:
        SpecError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    if str(path) == "-":
        return text_of(read_text(path), "standard input", folder=Path.cwd())
    json_only = True if Path(path).suffix.lower() == ".json" else None
    limit = MAX_JSON_BYTES if json_only else MAX_YAML_BYTES
    with _refusing(Path(path)):
        size = Path(path).stat().st_size
    if size > limit:
        hint = "split it into a directory of files" + ("" if json_only else ", or use JSON")
        raise SpecError(
            f"{path}: {size / 2**20:.0f} MiB is over the limit of {limit >> 20} MiB for this format; {hint}"
        )
    folder = Path(path).parent.absolute()
    return text_of(read_text(path), str(path), json_only=json_only, folder=folder)


def read_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a file, or of standard input for ``-``.

    Raises:
        SpecError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    source = "standard input" if str(path) == "-" else str(path)
    if str(path) == "-":
        if sys.stdin is None:
            raise SpecError("standard input: it is closed")
        data = sys.stdin.buffer.read(MAX_JSON_BYTES + 1)
    else:
        with _refusing(Path(path)), Path(path).open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise SpecError(f"{source}: over the limit of {MAX_JSON_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{source}: not UTF-8 text (byte {error.start})") from None


def lines_of(text: str) -> Iterator[str]:
    r"""Yield lines with their line ends; only \n, \r\n and \r end a line.

    `str.splitlines` would also split at characters that are valid in names, such as U+2028.
    """
    return iter(io.StringIO(text, newline=""))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Context that converts errors of the operating system at a path to one-line messages."""
    try:
        yield
    except OSError as error:
        raise SpecError(f"{path}: {reason_of(error)}") from None
    except ValueError:  # a null character
        raise SpecError(f"{str(path)!r}: not a path") from None


def text_of(
    content: str, source: str = "", *, json_only: bool | None = None, folder: Path | None = None
) -> Text:
    """Return text as a document's `Text`, with its format.

    Args:
        content: the text.
        source: its file, for messages.
        json_only: whether it is JSON; None: only if it starts with a brace.
        folder: folder to which file names in the document are relative.
    """
    is_json = content.lstrip()[:1] == "{" if json_only is None else json_only
    return Text(content, source, is_json, folder)


def parse_part(content: str, source: str = "", *, json_only: bool | None = None) -> Part:
    """Parse the text of one document; the arguments are those of `text_of`.

    Raises:
        FaultyDocumentsError: the document breaks the schema; every fault has its line and column.
        SpecError: the text is invalid in its format, or not a system document.
    """
    text = text_of(content, source, json_only=json_only)
    return part_of(text, text.value())


def part_of(text: Text, value: object) -> Part:
    """Validate the value that was parsed from a text, and return it as a document with its text.

    Raises:
        FaultyDocumentsError: the document breaks the schema; every fault has its line and column.
        SpecError: the document is not a system document.
    """
    try:
        return Part(spec_from_value(value, text.source, text.context), text)
    except SpecError:
        problems = list(islice(spec_problems(value, text.context), MAX_FAULTS + 1))
        if not problems:
            raise
    raise FaultyDocumentsError(text.faults(problems[:MAX_FAULTS]), others=max(0, len(problems) - MAX_FAULTS))


def plain_value(text: str, source: str, *, json_only: bool | None = None) -> object:
    """Parse text to plain values; the arguments are those of `text_of`.

    Raises:
        SpecError: the text is invalid in its format.
    """
    return text_of(text, source, json_only=json_only).value()


def spec_problems(raw: object, context: Mapping[str, object]) -> Iterator[tuple[Location, str]]:
    """Yield all schema errors of a system document given as plain values, with their locations."""
    if not isinstance(raw, Mapping) or answer_name(raw) is not None:
        return
    unknown: list[tuple[Location, str]] = []
    try:
        sections = _unwrapped(raw, unknown=unknown)
    except SpecError:
        return
    yield from unknown
    yield from document_problems(SystemSpec, sections, context)


def sound_spec(raw: object, context: Mapping[str, object]) -> Sound[SystemSpec]:
    """Return the valid part of a system document with schema errors."""
    assert isinstance(raw, Mapping)
    return sound_part(SystemSpec, _unwrapped(raw, unknown=[]), context)


def spec_from_value(raw: object, source: str = "", context: Mapping[str, object] | None = None) -> SystemSpec:
    """Validate a system document given as plain values, with or without the wrappers of llm-inferno.

    Args:
        raw: the plain values.
        source: the file, for messages.
        context: validation context.

    Raises:
        SpecError: the value breaks the schema; the message has the path of the first error.
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(raw, Mapping):
        what = "nothing" if raw is None else f"{json_type(raw)}"
        raise SpecError(f"{prefix}expected a document with sections such as 'servers', but found {what}")
    answer = answer_name(raw)
    if answer is not None:
        raise SpecError(f"{prefix}this is {answer}; give the system instead")
    sections = _unwrapped(raw, prefix)
    if not sections:
        raise SpecError(f"{prefix}expected a document with sections such as 'servers', but found none")
    return validated(SystemSpec, sections, prefix, context)


def section_items(text: Text, section: str) -> list[Any]:
    """Return the items of a section as plain values, parsed from the text of a valid document."""
    raw = text.value()
    assert isinstance(raw, Mapping)
    return list(_unwrapped(raw).get(section) or ())


def is_system(raw: object) -> bool:
    """Return whether plain values have a section of a system document, or a wrapper of llm-inferno."""
    return isinstance(raw, Mapping) and any(
        str(key).lower() in SECTIONS or str(key).lower() in WRAPPERS for key in raw
    )


def _unwrapped(
    raw: Mapping[Any, Any],
    prefix: str = "",
    depth: int = 0,
    unknown: list[tuple[Location, str]] | None = None,
) -> dict[Any, Any]:
    """Return the sections of a document without the wrappers of llm-inferno.

    Args:
        raw: the document, or a wrapper in it.
        prefix: prefix of messages.
        depth: number of wrappers around this one.
        unknown: list to which unknown keys are added; None if they are errors.
    """
    if depth > MAX_WRAPPERS:
        raise SpecError(
            f"{prefix}too many nested wrappers; sections must be at most {MAX_WRAPPERS} levels deep"
        )
    sections: dict[Any, Any] = {}
    for key, value in raw.items():
        lower = key.lower() if isinstance(key, str) else key
        if value is None and lower in WRAPPERS:
            continue
        if isinstance(value, Mapping) and (
            lower in WRAPPERS or (lower == "optimizer" and [str(k).lower() for k in value] == ["optimizer"])
        ):
            inner = _unwrapped(value, prefix, depth + 1, unknown)
        elif lower in SECTIONS:
            inner = {SECTIONS[lower]: value}
        else:
            problem = unknown_key(str(key), SECTIONS.values())
            if unknown is None:
                raise SpecError(f"{prefix}{path_text([str(key)])}: {problem}")
            unknown.append(((str(key),), problem))
            continue
        for name in inner:
            if name in sections:
                raise SpecError(f"{prefix}{name}: the section occurs twice in one document; join the two")
        sections |= inner
    return sections


def json_value(text: str, source: str) -> object:
    """Parse JSON text; duplicate keys are errors.

    Raises:
        SpecError: the text is not JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            twice, place = next(name for name in names if names.count(name) > 1), source
            if unique := duplicate_key(text):
                twice, (line, column) = unique
                place = f"{source}:{line}:{column}"
            raise SpecError(f"{place}: key {twice!r} occurs twice in one object")
        return mapping

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{source}:{error.lineno}:{error.colno}: not valid JSON: {error.msg.lower()}"
        ) from None
    except RecursionError:
        raise SpecError(f"{source}: not valid JSON: nested too deeply") from None
    except ValueError:
        raise SpecError(f"{source}: not valid JSON: a number has too many digits") from None
