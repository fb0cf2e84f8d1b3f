"""Files to documents: YAML or JSON, one file, a directory of them, or standard input.

Takes a path, gives `Part`s: the documents with the place that each came from. A key that
occurs twice is an error in both formats.
"""

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimizer.documents import FOLDER
from optimizer.errors import SpecError
from optimizer.spec.messages import UNKNOWN_KEY, kind_of, path_text, validated
from optimizer.spec.schema import SystemSpec
from optimizer.spec.yaml_format import yaml_value

SUFFIXES = (".yaml", ".yml", ".json")
MAX_YAML_BYTES = 8 * 2**20
MAX_JSON_BYTES = 512 * 2**20
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
class Part:
    """A document and where it came from (a file's name, or nothing for a value in memory)."""

    spec: SystemSpec
    source: str = ""

    def place(self, path: str) -> str:
        """Return `path` with the source before it, as messages show it."""
        return f"{self.source}: {path}" if self.source else path


def read_parts(path: str | os.PathLike[str]) -> list[Part]:
    """Read the documents of a file, of every document file of a directory, or of ``-`` (standard input).

    Raises:
        SpecError: the path does not exist, cannot be read or parsed, or a document breaks the schema.
    """
    if str(path) == "-":
        return [parse_part(read_text(path), "standard input", folder=Path.cwd())]
    root = Path(path)
    with _refusing(root):
        if not root.is_dir():
            return [_read_part(root)]
        files = sorted(
            entry for entry in root.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file()
        )
    if not files:
        raise SpecError(f"{root}: the directory holds no {', '.join(SUFFIXES)} file")
    return [_read_part(file) for file in files]


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


def _read_part(path: Path) -> Part:
    json_only = path.suffix.lower() == ".json"
    limit = MAX_JSON_BYTES if json_only else MAX_YAML_BYTES
    with _refusing(path):
        size = path.stat().st_size
    if size > limit:
        raise SpecError(
            f"{path}: {size / 2**20:.0f} MiB is over the limit of {limit >> 20} MiB for this format; "
            "split it into a directory of files, or use JSON"
        )
    return parse_part(read_text(path), str(path), json_only=json_only, folder=path.parent.absolute())


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{source}: not UTF-8 text (byte {error.start})") from None


def parse_part(
    text: str, source: str = "", *, json_only: bool | None = None, folder: Path | None = None
) -> Part:
    """Parse one document; without `json_only`, text that begins with a brace is JSON, other text YAML.

    With a folder the document may name files in it.

    Raises:
        SpecError: the text is neither, or the document breaks the schema.
    """
    raw = plain_value(text, source, json_only=json_only)
    return Part(spec_from_value(raw, source, None if folder is None else {FOLDER: folder}), source)


def plain_value(text: str, source: str, *, json_only: bool | None = None) -> object:
    """Parse text as plain values; without `json_only`, what begins with a brace is JSON, other text YAML.

    Raises:
        SpecError: the text is neither.
    """
    if json_only is None:
        json_only = text.lstrip()[:1] == "{"
    if not json_only and len(text) > MAX_YAML_BYTES:
        raise SpecError(f"{source}: over the limit of {MAX_YAML_BYTES >> 20} MiB for YAML; use JSON")
    return json_value(text, source) if json_only else yaml_value(text, source)


def spec_from_value(raw: object, source: str = "", context: Mapping[str, object] | None = None) -> SystemSpec:
    """Validate a document given as plain values, in the bare or in the reference's wrapped form.

    Raises:
        SpecError: the value breaks the schema; the text has the path of the first offender.
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(raw, Mapping):
        what = "nothing" if raw is None else f"{kind_of(raw)}"
        raise SpecError(f"{prefix}a document with sections such as 'servers' is expected, this holds {what}")
    if is_plan(raw):
        raise SpecError(f"{prefix}this is a plan, or an answer; give the system that it was made for")
    sections = _unwrapped(raw, prefix)
    if not sections:
        raise SpecError(f"{prefix}a document with sections such as 'servers' is expected, this holds none")
    return validated(SystemSpec, sections, prefix, context)


def is_plan(raw: object) -> bool:
    """Say whether plain values are meant to be a plan, or the reference's answer, and not a system."""
    return isinstance(raw, Mapping) and any(str(key).lower() == "allocations" for key in raw)


def _unwrapped(raw: Mapping[Any, Any], prefix: str, depth: int = 0) -> dict[Any, Any]:
    """Return the sections of a document without the reference's wrappers around them."""
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
            inner = _unwrapped(value, prefix, depth + 1)
        else:
            if lower not in _SECTIONS:
                raise SpecError(f"{prefix}{path_text([str(key)])}: {UNKNOWN_KEY}")
            inner = {_SECTIONS[lower]: value}
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
            twice = next(name for name in names if names.count(name) > 1)
            raise SpecError(f"{source}: key {twice!r} occurs twice in one object")
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
