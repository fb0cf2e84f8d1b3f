"""Files to documents and back: YAML or JSON, one file, a directory of them, or standard input.

Takes a path, gives `Part`s: the documents with the place that each came from. YAML is read by the rules
of YAML 1.2 (``1e-9`` is a number, ``no`` is text), and a key that occurs twice is an error in both formats.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.spec.messages import kind_of, validated
from optimizer.spec.schema import SystemSpec

SUFFIXES = (".yaml", ".yml", ".json")
MAX_YAML_BYTES = 16 * 2**20
MAX_JSON_BYTES = 512 * 2**20

_WRAPPERS = {
    "acceleratordata",
    "modeldata",
    "serviceclassdata",
    "serverdata",
    "capacitydata",
    "optimizerdata",
}
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
        return [
            parse_part(
                _decoded(sys.stdin.buffer.read(MAX_JSON_BYTES + 1), "standard input"), "standard input"
            )
        ]
    root = Path(path)
    if not root.is_dir():
        return [_read_part(root)]
    files = sorted(entry for entry in root.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file())
    if not files:
        raise SpecError(f"{root}: the directory holds no {', '.join(SUFFIXES)} file")
    return [_read_part(file) for file in files]


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        SpecError: the file cannot be read, or is not UTF-8 text.
    """
    if str(path) == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    try:
        return _decoded(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise SpecError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _read_part(path: Path) -> Part:
    limit = MAX_JSON_BYTES if path.suffix.lower() == ".json" else MAX_YAML_BYTES
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SpecError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if size > limit:
        raise SpecError(
            f"{path}: {size / 2**20:.0f} MiB is over the limit of {limit >> 20} MiB for this format; "
            "split it into a directory of files, or use JSON"
        )
    return parse_part(read_text(path), str(path), json_only=path.suffix.lower() == ".json")


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{source}: not UTF-8 text (byte {error.start})") from None


def parse_part(text: str, source: str = "", *, json_only: bool | None = None) -> Part:
    """Parse one document; without `json_only`, text that begins with a brace is JSON, other text YAML.

    Raises:
        SpecError: the text is neither, or the document breaks the schema.
    """
    if json_only is None:
        json_only = text.lstrip()[:1] == "{"
    if not json_only and len(text) > MAX_YAML_BYTES:
        raise SpecError(f"{source}: over the limit of {MAX_YAML_BYTES >> 20} MiB for YAML; use JSON")
    raw = json_value(text, source) if json_only else _yaml_value(text, source)
    return Part(spec_from_value(raw, source), source)


def spec_from_value(raw: object, source: str = "") -> SystemSpec:
    """Validate a document given as plain values, in the bare or in the reference's wrapped form.

    Raises:
        SpecError: the value breaks the schema; the text has the path of the first offender.
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(raw, Mapping):
        what = "nothing" if raw is None else f"{kind_of(raw)}"
        raise SpecError(f"{prefix}a document with sections such as 'servers' is expected, this holds {what}")
    return validated(SystemSpec, _unwrapped(raw, prefix), prefix)


def _unwrapped(raw: Mapping[Any, Any], prefix: str) -> dict[Any, Any]:
    """Return the sections of a document without the reference's wrappers around them."""
    sections: dict[Any, Any] = {}
    for key, value in raw.items():
        lower = key.lower() if isinstance(key, str) else key
        if isinstance(value, Mapping) and (
            lower == "system"
            or lower in _WRAPPERS
            or (lower == "optimizer" and [str(k).lower() for k in value] == ["optimizer"])
        ):
            inner = _unwrapped(value, prefix)
        else:
            inner = {_SECTIONS.get(lower, key): value}
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
    except ValueError as error:
        raise SpecError(f"{source}: not valid JSON: {str(error).splitlines()[0].lower()}") from None


def _yaml_value(text: str, source: str) -> object:
    import yaml  # slow to import, and JSON needs none of it

    try:
        return yaml.load(text, _yaml_loader())  # noqa: S506  a subclass of the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise SpecError(f"{place}: not valid YAML: {str(problem).splitlines()[0]}") from None
    except RecursionError:
        raise SpecError(f"{source}: not valid YAML: nested too deeply") from None
    except ValueError as error:
        raise SpecError(f"{source}: not valid YAML: {error}") from None


def _yaml_rules() -> list[tuple[str, Any, list[str]]]:
    """Return the implicit types of YAML 1.2's core schema: tag, pattern, first characters."""
    import re

    digits = list("-+0123456789")
    return [
        ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
        ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
        ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), digits),
        (
            "tag:yaml.org,2002:float",
            re.compile(
                r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
                r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
            ),
            [*digits, "."],
        ),
        ("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"]),
    ]


@cache
def _yaml_loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  the attribute that PyYAML defines

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002  PyYAML's signature
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"key {key.value!r} occurs twice", key.start_mark
                        )
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    for tag, pattern, first in _yaml_rules():
        Loader.add_implicit_resolver(tag, pattern, first)
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
    Loader.add_constructor(
        "tag:yaml.org,2002:float",
        lambda loader, node: float(
            loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan")
        ),
    )
    return Loader


@cache
def _yaml_dumper() -> Any:
    """Return a dumper that quotes text which either YAML 1.1 or 1.2 would read as something else."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
            return True

    for tag, pattern, first in _yaml_rules():
        Dumper.add_implicit_resolver(tag, pattern, first)
    return Dumper


def write_document(raw: Mapping[str, Any], path: Path) -> None:
    """Write plain values as JSON or YAML, by the suffix of `path`; the file appears whole or not at all.

    Raises:
        SpecError: the suffix is of neither format, or the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".json":
        text = json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
    else:
        import yaml

        text = yaml.dump(raw, Dumper=_yaml_dumper(), sort_keys=False, allow_unicode=True, width=120)
    write_text(text, path)


def write_text(text: str, path: Path) -> None:
    """Write a text file whole or not at all.

    Raises:
        SpecError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: there is nothing to replace
            path.write_text(text, encoding="utf-8")
            return
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
