"""Finished work of a study in a file, so that a stopped study goes on where it stopped.

The first line is a digest of the system; every other line is a key with its answer, as JSON. A key says all
that an answer depends on beside the system, so a file serves several questions about it. An incomplete last
line, of a process that was killed while it wrote, is dropped.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.parallel import as_done

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer", bound=Document)

BATCH = 8
"""Items that one worker takes one after the other, so that they share what is sized."""

Tell = Callable[[int, int], None]
"""Is told how many items of how many are done."""


def ignore_progress(_done: int, _total: int) -> None:
    """Keep the progress to oneself."""


def digest_of(text: str) -> str:
    """Return a digest of what answers depend on."""
    return hashlib.sha256(text.encode()).hexdigest()


class Checkpoint:
    """Answers by key, as plain values, kept in a file if there is one."""

    def __init__(self, path: Path | None = None, digest: str = "") -> None:
        """Read the answers that a file holds.

        Raises:
            SpecError: the file cannot be read, or holds answers to another question.
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
        """Keep some answers, and write them to the file at once.

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
    tell: Tell,
) -> list[_Answer]:
    """Return the answer to each item, in their order; those that are not finished are worked on in batches.

    Args:
        work: answers some items; where there is a cluster, it is sent there.
        items: by the key under which their answers are kept.
        answer: the kind of document that an answer is.
        done: answers that are finished; new ones are added.
        tell: is told how far the work has come.
    """
    missing = [key for key in items if key not in done.answers]
    parts = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
    count = len(items) - len(missing)
    batches = [tuple(items[key] for key in part) for part in parts]
    for part, found in zip(parts, as_done(work, batches), strict=True):
        values = [each.model_dump(mode="json", by_alias=True) for each in found]
        done.add(dict(zip(part, values, strict=True)))
        count += len(part)
        tell(count, len(items))
    return [answer.model_validate(done.answers[key]) for key in items]


def _complete_lines(path: Path) -> list[Any]:
    """Return the values of a file's complete lines; none if there is no file.

    Raises:
        SpecError: it cannot be read, or holds something else.
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
        raise SpecError(f"{path}: no file of finished points; remove it, or name another file") from None
    return lines
