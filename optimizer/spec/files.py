"""Files to documents: YAML or JSON, one file, a directory of them, or standard input.

Takes a path, gives `Part`s: the documents with the place that each came from. A key that
occurs twice is an error in both formats.
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

from optimizer.documents import FOLDER
from optimizer.errors import SpecError
from optimizer.spec.faults import (
    MAX_FAULTS,
    Fault,
    FaultyDocumentsError,
    Sound,
    document_problems,
    sound_part,
)
from optimizer.spec.messages import kind_of, path_text, unknown_key, validated
from optimizer.spec.positions import Location, duplicate_key, find_positions
from optimizer.spec.recognition import answer_name
from optimizer.spec.samples import sample_or_path
from optimizer.spec.schema import SystemSpec
from optimizer.spec.yaml_format import yaml_value

SUFFIXES = (".yaml", ".yml", ".json")
MAX_YAML_BYTES = 8 * 2**20
MAX_JSON_BYTES = 64 * 2**20
MAX_WRAPPERS = 3
"""The deepest of the reference (llm-inferno, docs/glossary.md): system, optimizerData, optimizer."""

WRAPPERS = {
    "system",
    "acceleratordata",
    "modeldata",
    "serviceclassdata",
    "serverdata",
    "capacitydata",
    "optimizerdata",
}
"""The reference's wrappers around the sections, in lower case."""
_SECTIONS = {
    (field.alias or name).lower(): field.alias or name for name, field in SystemSpec.model_fields.items()
}


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a document, and where it came from (a file's name, or nothing for text in memory)."""

    content: str
    source: str = ""
    json_only: bool = False
    """Whether it is JSON; else YAML."""
    folder: Path | None = None
    """The folder in which the document may name files."""

    @property
    def context(self) -> dict[str, object]:
        """What the validation of the document may need beside it."""
        return {} if self.folder is None else {FOLDER: self.folder}

    def value(self) -> object:
        """Parse the text as plain values.

        Raises:
            SpecError: it is not of its format.
        """
        if self.json_only:
            return json_value(self.content, self.source)
        if len(self.content) > MAX_YAML_BYTES:
            raise SpecError(f"{self.source}: over the limit of {MAX_YAML_BYTES >> 20} MiB for YAML; use JSON")
        return yaml_value(self.content, self.source)

    def faults(self, problems: Sequence[tuple[Location, str]]) -> list[Fault]:
        """Return problems as faults, each with its line and column."""
        locations = [location for location, _ in problems]
        found = find_positions(self.content, locations, WRAPPERS, json_only=self.json_only)
        return [Fault(at, problem, self.source, found.get(at)) for at, problem in problems]


@dataclass(frozen=True, slots=True)
class Part:
    """A document and the text that it came from (none for a value in memory)."""

    spec: SystemSpec
    text: Text | None = None
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where the items of the spec stand in the text, by section; empty: in the same places."""

    @property
    def source(self) -> str:
        """The file; empty for a value in memory."""
        return "" if self.text is None else self.text.source

    def location(self, section: str, item: int) -> Location:
        """Return where an item of the spec stands in the text."""
        return section, self.kept[section][item] if section in self.kept else item

    def faults(self, problems: Sequence[tuple[Location, str]]) -> list[Fault]:
        """Return problems as faults, with line and column where there is a text."""
        if self.text is None:
            return [Fault(location, problem) for location, problem in problems]
        return self.text.faults(problems)


def read_parts(path: str | os.PathLike[str]) -> list[Part]:
    """Read the documents of a file, of every document file of a directory, or of ``-`` (standard input).

    Raises:
        SpecError: the path does not exist, cannot be read or parsed, or a document breaks the schema.
    """
    texts = map(read_document, document_files(path))
    return [part_of(text, text.value()) for text in texts]


def document_files(path: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the path itself, or the document files of a directory.

    Raises:
        SpecError: the path does not exist, or the directory holds no such file.
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
        with _refusing(entry):  # a link that leads nowhere, or in a circle, is no reason to plan without it
            if stat.S_ISREG(entry.stat().st_mode):
                files.append(entry)
    if not files:
        raise SpecError(f"{root}: the directory holds no {', '.join(SUFFIXES)} file")
    return files


def read_document(path: str | os.PathLike[str]) -> Text:
    """Return the text of a document file, or of standard input for ``-``.

    Raises:
        SpecError: it cannot be read, is too large, or is not UTF-8 text.
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
    """Return the text of a file, or of standard input for ``-``.

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
    return _decoded(data, source)


def lines_of(text: str) -> Iterator[str]:
    r"""Yield lines as files have them, with their ends: only \n, \r\n and \r end one.

    `str.splitlines` would also split at characters that names may hold, such as U+2028.
    """
    return iter(io.StringIO(text, newline=""))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a path into one line."""
    try:
        yield
    except OSError as error:
        raise SpecError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a null character
        raise SpecError(f"{str(path)!r}: not a path") from None


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{source}: not UTF-8 text (byte {error.start})") from None


def text_of(
    content: str, source: str = "", *, json_only: bool | None = None, folder: Path | None = None
) -> Text:
    """Return a text with its format; without `json_only`, what begins with a brace is JSON, the rest YAML.

    With a folder the document may name files in it.
    """
    is_json = content.lstrip()[:1] == "{" if json_only is None else json_only
    return Text(content, source, is_json, folder)


def parse_part(content: str, source: str = "", *, json_only: bool | None = None) -> Part:
    """Parse one document; its format is that of `text_of`.

    Raises:
        FaultyDocumentsError: it breaks the schema; every fault has its line and column.
        SpecError: the text is not of its format, or no document of a system at all.
    """
    text = text_of(content, source, json_only=json_only)
    return part_of(text, text.value())


def part_of(text: Text, value: object) -> Part:
    """Return the document whose text was parsed as `value`.

    Raises:
        FaultyDocumentsError: it breaks the schema; every fault has its line and column.
        SpecError: it is no document of a system at all.
    """
    try:
        return Part(spec_from_value(value, text.source, text.context), text)
    except SpecError:
        problems = list(islice(spec_problems(value, text.context), MAX_FAULTS + 1))
        if not problems:
            raise
    raise FaultyDocumentsError(text.faults(problems[:MAX_FAULTS]), others=max(0, len(problems) - MAX_FAULTS))


def plain_value(text: str, source: str, *, json_only: bool | None = None) -> object:
    """Parse text as plain values; without `json_only`, what begins with a brace is JSON, other text YAML.

    Raises:
        SpecError: the text is neither.
    """
    return text_of(text, source, json_only=json_only).value()


def spec_problems(raw: object, context: Mapping[str, object]) -> Iterator[tuple[Location, str]]:
    """Yield everything that breaks the schema in a document given as plain values, with its location."""
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
    """Return what is sound in a document that has problems."""
    assert isinstance(raw, Mapping)
    return sound_part(SystemSpec, _unwrapped(raw, unknown=[]), context)


def spec_from_value(raw: object, source: str = "", context: Mapping[str, object] | None = None) -> SystemSpec:
    """Validate a document given as plain values, in the bare or in the reference's wrapped form.

    Raises:
        SpecError: the value breaks the schema; the text has the path of the first offender.
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(raw, Mapping):
        what = "nothing" if raw is None else f"{kind_of(raw)}"
        raise SpecError(f"{prefix}a document with sections such as 'servers' is expected, this holds {what}")
    answer = answer_name(raw)
    if answer is not None:
        raise SpecError(f"{prefix}this is {answer}; give the system instead")
    sections = _unwrapped(raw, prefix)
    if not sections:
        raise SpecError(f"{prefix}a document with sections such as 'servers' is expected, this holds none")
    return validated(SystemSpec, sections, prefix, context)


def section_items(text: Text, section: str) -> list[Any]:
    """Return the items of a section of a document that can be parsed, in plain values."""
    raw = text.value()
    assert isinstance(raw, Mapping)
    return list(_unwrapped(raw).get(section) or ())


def is_system(raw: object) -> bool:
    """Return whether plain values have a section of a system, or one of the reference's wrappers."""
    return isinstance(raw, Mapping) and any(
        str(key).lower() in _SECTIONS or str(key).lower() in WRAPPERS for key in raw
    )


def _unwrapped(
    raw: Mapping[Any, Any],
    prefix: str = "",
    depth: int = 0,
    unknown: list[tuple[Location, str]] | None = None,
) -> dict[Any, Any]:
    """Return the sections of a document without the reference's wrappers around them.

    Args:
        raw: the document, or a wrapper of it.
        prefix: stands before messages.
        depth: wrappers around this one.
        unknown: takes up keys that are not known, in place of an error.
    """
    if depth > MAX_WRAPPERS:
        raise SpecError(
            f"{prefix}wrappers within wrappers; the sections are expected at most {MAX_WRAPPERS} deep"
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
        elif lower in _SECTIONS:
            inner = {_SECTIONS[lower]: value}
        else:
            problem = unknown_key(str(key), _SECTIONS.values())
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
    """Parse JSON text; a key that occurs twice in one object is an error.

    Raises:
        SpecError: the text is not JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            twice, place = next(name for name in names if names.count(name) > 1), source
            if found := duplicate_key(text):
                twice, (line, column) = found
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
