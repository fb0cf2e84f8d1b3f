"""Writes documents and other files atomically."""

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError, reason_of
from optimizer.schema.files import SUFFIXES
from optimizer.schema.yaml_format import yaml_text


def write_document(raw: Mapping[str, Any], path: Path) -> None:
    """Write plain values as JSON or YAML, depending on the suffix of `path`, atomically.

    Raises:
        SpecError: the suffix is not JSON or YAML, or the file cannot be written.
    """
    check_suffix(path)
    if path.suffix.lower() == ".json":
        text = json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
    else:
        text = yaml_text(raw)
    write_text(text, path)


def check_suffix(path: Path) -> None:
    """Check that the suffix of a document's path is JSON or YAML.

    Raises:
        SpecError: the suffix is neither.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}")


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically.

    Raises:
        SpecError: the file cannot be written.
    """
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically; if the path is a symbolic link, its target is written.

    Raises:
        SpecError: the file cannot be written.
    """
    if str(path) == "-":
        raise SpecError("-: only input is read from -; name a file, or /dev/stdout")
    try:
        if path.exists() and (not path.is_file() or _is_stdout(path)):
            path.write_bytes(content)  # a device, a pipe or standard output cannot be replaced
        else:
            _replace(_target(path), content)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {reason_of(error)}") from None


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a file, or a directory of files, to a new path, and return that path.

    Raises:
        SpecError: the path exists, or cannot be written.
    """
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    if os.path.lexists(target):
        raise SpecError(f"{target}: already exists; name another directory")
    try:
        (target if source.is_dir() else target.parent).mkdir(parents=True)
    except FileExistsError:
        pass
    except OSError as error:
        raise SpecError(f"{target}: cannot be written: {reason_of(error)}") from None
    for file in files:
        write_bytes(file.read_bytes(), target / file.name if source.is_dir() else target)
    return target


def _target(path: Path) -> Path:
    """Return the path with all symbolic links resolved; the file need not exist.

    Raises:
        OSError: the links are circular.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _is_stdout(path: Path) -> bool:
    """Return whether a path refers to the file of standard output."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # standard output is closed
        return False


def _replace(path: Path, content: bytes) -> None:
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
