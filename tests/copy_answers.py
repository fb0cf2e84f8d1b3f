"""What programs that run in a copy of the tree ask of it: output of commands, faults of documents, leaves."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from optimizer import load_system
from optimizer.cli.main import main
from optimizer.schema.faults import FaultyDocumentsError


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number and text."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    elif value is not None and not isinstance(value, bool):
        yield path


def said(*arguments: object) -> str:
    """Return the output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main([str(argument) for argument in arguments])
    assert status in (0, None, 1), (arguments, status)
    return out.getvalue()


def faults_of(document: dict[str, Any]) -> list[str]:
    """Return the faults of a document."""
    try:
        load_system(document)
    except FaultyDocumentsError as error:
        return [str(fault) for fault in error.faults]
    return []
