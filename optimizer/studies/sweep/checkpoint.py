"""Stores finished work of a study in a file, so that an interrupted study can resume.

The first line is a digest of the system. Every other line is a key with its answer, as JSON. A key contains
everything but the system on which the answer depends, so one file can serve several questions about a system.
An incomplete last line, left by a killed process, is dropped.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.parallel import Progress, as_done

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer", bound=Document)

BATCH = 8
"""Number of items that one worker processes in sequence, so that they share sizings."""


def digest_of(text: str) -> str:
    """Return a digest of the text on which answers depend."""
    return hashlib.sha256(text.encode()).hexdigest()


class Checkpoint:
    """Finished answers by key, as plain values; they are also stored in a file if there is one."""

    def __init__(self, path: Path | None = None, digest: str = "") -> None:
        """Read the answers that a file contains.

        Args:
            path: the file; None for no file.
            digest: digest of the system, which the file must have.

        Raises:
            SpecError: the file cannot be read, or contains answers about another system.
        """
        self._path = path
        self.answers: dict[str, Any] = {}
        if path is None:
            return
        head, lines = {"system": digest}, _complete_lines(path)
        if lines and lines[0] != head:
            raise SpecError(
                f"{path}: holds plans of another system or version; remove it, or name another file"
            )
        self.answers.update(dict(lines[1:]))
        self._write("w", [head, *lines[1:]])

    def add(self, answers: Mapping[str, Any]) -> None:
        """Store answers, and write them to the file immediately.

        Raises:
            SpecError: the file cannot be written.
        """
        self.answers.update(answers)
        if self._path is not None:
            self._write("a", [*answers.items()])

    def _write(self, mode: str, lines: list[Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open(mode, encoding="utf-8") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SpecError(f"{self._path}: cannot be written: {error.strerror}") from None


def answered(
    work: Callable[[Sequence[_Item]], Sequence[_Answer]],
    items: Mapping[str, _Item],
    answer: type[_Answer],
    done: Checkpoint,
    tell: Progress,
) -> list[_Answer]:
    """Return the answer to each item, in order; items without a stored answer are processed in batches.

    Args:
        work: function that answers a batch of items; with a cluster, it runs there.
        items: items by the key of their stored answers.
        answer: document type of the answers.
        done: finished answers; new ones are added.
        tell: called with the progress.
    """
    missing = [key for key in items if key not in done.answers]
    parts = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
    count = len(items) - len(missing)
    batches = [tuple(items[key] for key in part) for part in parts]
    for part, answers in zip(parts, as_done(work, batches), strict=True):
        values = [each.model_dump(mode="json", by_alias=True) for each in answers]
        done.add(dict(zip(part, values, strict=True)))
        count += len(part)
        tell(count, len(items))
    return [answer.model_validate(done.answers[key]) for key in items]


def _complete_lines(path: Path) -> list[Any]:
    """Return the values in a file's complete lines; empty if there is no file.

    Raises:
        SpecError: the file cannot be read, or has another format.
    """
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        lines = [None]
    pairs = all(isinstance(line, list) and len(line) == 2 and isinstance(line[0], str) for line in lines[1:])
    if not (pairs and all(isinstance(line, dict) for line in lines[:1])):
        raise SpecError(f"{path}: not a file of finished points; remove it, or name another file") from None
    return lines
