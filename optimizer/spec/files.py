"""Files to documents and back: YAML or JSON, one file, a directory of them, or standard input.

Takes a path, gives `Part`s: the documents with the place that each came from. YAML is read by the rules
of YAML 1.2 (``1e-9`` is a number, ``no`` is text), and a key that occurs twice is an error in both formats.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.spec.messages import UNKNOWN_KEY, kind_of, path_text, validated
from optimizer.spec.schema import SystemSpec

SUFFIXES = (".yaml", ".yml", ".json")
MAX_YAML_BYTES = 8 * 2**20
MAX_JSON_BYTES = 512 * 2**20
MAX_WRAPPERS = 3
"""The reference's deepest: system, optimizerData, optimizer."""
MAX_YAML_ENTRIES = 1_000_000
"""Lines and commas of a YAML document: what it may hold grows with them, and so does the time to read it."""
MAX_DEPTH = 100
"""Deepest nesting of YAML; the parser would follow any depth until its stack ends."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]")
"""Text with any of these is written in double quotes, where it is escaped."""
_WRAPPERS = {
    "system",
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
        return [parse_part(read_text(path), "standard input")]
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
    return parse_part(read_text(path), str(path), json_only=json_only)


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
    return Part(spec_from_value(plain_value(text, source, json_only=json_only), source), source)


def plain_value(text: str, source: str, *, json_only: bool | None = None) -> object:
    """Parse text as plain values; without `json_only`, what begins with a brace is JSON, other text YAML.

    Raises:
        SpecError: the text is neither.
    """
    if json_only is None:
        json_only = text.lstrip()[:1] == "{"
    if not json_only and len(text) > MAX_YAML_BYTES:
        raise SpecError(f"{source}: over the limit of {MAX_YAML_BYTES >> 20} MiB for YAML; use JSON")
    return json_value(text, source) if json_only else _yaml_value(text, source)


def spec_from_value(raw: object, source: str = "") -> SystemSpec:
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
    return validated(SystemSpec, _unwrapped(raw, prefix), prefix)


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
        if value is None and lower in _WRAPPERS:
            continue
        if isinstance(value, Mapping) and (
            lower in _WRAPPERS or (lower == "optimizer" and [str(k).lower() for k in value] == ["optimizer"])
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


def _yaml_value(text: str, source: str) -> object:
    import yaml  # slow to import, and JSON needs none of it

    if text.count("\n") + text.count(",") > MAX_YAML_ENTRIES:
        raise SpecError(f"{source}: more than {MAX_YAML_ENTRIES:,} lines and commas; use JSON")
    if _nested_too_deeply(text):
        raise SpecError(f"{source}: not valid here: nested more than {MAX_DEPTH} deep")
    try:
        return yaml.load(text, _yaml_loader())  # noqa: S506  a subclass of the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        parts = [getattr(error, name, None) for name in ("context", "problem", "reason")]
        problem = ", ".join(str(part).splitlines()[0] for part in parts if part)
        raise SpecError(f"{place}: not valid YAML: {problem or str(error).splitlines()[0]}") from None
    except RecursionError:
        raise SpecError(f"{source}: not valid YAML: nested too deeply") from None
    except ValueError:
        raise SpecError(f"{source}: not valid YAML: a number has too many digits") from None


def _nested_too_deeply(text: str) -> bool:
    """Say whether brackets, dashes on one line or indentation go deeper than any document needs."""
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return (
        re.search(rf"(?:[-?][ \t]+){{{MAX_DEPTH},}}|^ {{{5 * MAX_DEPTH},}}", text, re.MULTILINE) is not None
    )


def _yaml_rules() -> list[tuple[str, Any, list[str]]]:
    """Return the implicit types of YAML 1.2's core schema: tag, pattern, first characters."""
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
    # Only the core types: a document that names another one gets an error, not a surprise.
    Loader.yaml_constructors = {
        None: base.yaml_constructors[None],
        **{
            f"tag:yaml.org,2002:{name}": base.yaml_constructors[f"tag:yaml.org,2002:{name}"]
            for name in ("null", "str", "seq", "map")
        },
        "tag:yaml.org,2002:bool": _constructor({"true": True, "false": False}.__getitem__),
        "tag:yaml.org,2002:int": _constructor(int),
        "tag:yaml.org,2002:float": _constructor(
            lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan"))
        ),
    }
    return Loader


def _yaml_float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _constructor(parse: Callable[[str], object]) -> Any:
    """Return a constructor of scalars; text that `parse` cannot take is an error at its place."""
    import yaml

    def construct(loader: Any, node: Any) -> object:
        text = loader.construct_scalar(node)
        try:
            return parse(text.lower())
        except KeyError:
            raise yaml.constructor.ConstructorError(
                None, None, f"not a value: {text!r}", node.start_mark
            ) from None

    return construct


@cache
def _yaml_dumper() -> Any:
    """Return a dumper that quotes text which either YAML 1.1 or 1.2 would read as something else."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
            return True

    def represent(dumper: Any, text: str) -> Any:
        style = '"' if _UNPRINTABLE.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
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
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file whole or not at all.

    Raises:
        SpecError: the file cannot be written.
    """
    if str(path) == "-":
        raise SpecError("-: only input is read from -; name a file, or /dev/stdout")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: there is nothing to replace
            path.write_bytes(content)
            return
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
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
