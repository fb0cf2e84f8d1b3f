"""Checks of the systems, plans and paths that Python users pass.

A wrong argument, such as a path instead of a `System`, becomes an error that states how to read the document.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar, get_args

from pydantic import BaseModel

from optimizer.errors import SpecError
from optimizer.schema.messages import did_you_mean

READERS = {"System": "load_system", "Plan": "load_plan"}
"""Functions that read a document, by the name of its class."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def checks_documents(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function so that it rejects arguments that are not the `System` or `Plan` it requires.

    Raises:
        SpecError: an argument is not of the annotated class; the message says how to read a document.
    """
    parameters = inspect.signature(function).parameters
    allowed = {name: _classes(parameter.annotation) for name, parameter in parameters.items()}
    checked = {
        name: classes for name, classes in allowed.items() if classes and classes[0].__name__ in READERS
    }

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for name, value in {**dict(zip(parameters, args, strict=False)), **kwargs}.items():
            if not isinstance(value, checked.get(name, object)):
                text = _problem(value, [each.__name__ for each in checked[name] if each.__name__ in READERS])
                raise SpecError(f"{function.__name__}: {name} {text}")
        return function(*args, **kwargs)

    return call


def _classes(annotation: object) -> tuple[type, ...]:
    """Return the classes in an annotation such as ``System | None``."""
    return tuple(each for each in get_args(annotation) or (annotation,) if isinstance(each, type))


def type_name(value: object) -> str:
    """Return the type of a value as text for messages: ``a dict``, ``an int``; ``None`` for None."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def check_path(path: object, reader: str) -> None:
    """Check that a value can be a path of a document.

    Raises:
        SpecError: it is of another type, or the text of a document.
    """
    if not isinstance(path, str | os.PathLike):
        raise SpecError(f"{reader}: must be a path or a mapping, not {type_name(path)}")
    if "\n" in os.fspath(path):
        raise SpecError(f"{reader}: this is text instead of its path; parse it, or write it to a file")


def check_field_names(model: type[BaseModel], names: Iterable[str], place: str, noun: str = "field") -> None:
    """Check that a document type has fields with the given Python names.

    Args:
        model: the document.
        place: prefix of messages.
        noun: noun for messages.

    Raises:
        SpecError: a field does not exist. If the name used in documents was given, the message states the
            Python name.
    """
    fields = model.model_fields
    for name in names:
        if name in fields:
            continue
        python = next((known for known, field in fields.items() if field.alias == name), None)
        hint = f"; did you mean {python!r}?" if python else did_you_mean(name, fields)
        raise SpecError(f"{place}{name}: unknown {noun}{hint}")


def _problem(value: object, classes: list[str]) -> str:
    readable = isinstance(value, str | os.PathLike | Mapping)
    shown = repr(os.fspath(value)) if isinstance(value, str | os.PathLike) else type_name(value)
    argument = shown if isinstance(value, str | os.PathLike) else "..."
    calls = " or ".join(f"{READERS[each]}({argument})" for each in classes)
    return f"must be a {' or a '.join(classes)}, not {shown}; " + (
        f"pass {calls}" if readable else f"read it with {calls}"
    )
