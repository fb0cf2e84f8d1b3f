"""Check the systems and plans that Python users pass, so that a path in their place gets a sentence."""

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar, get_args

from optimizer.errors import SpecError

READERS = {"System": "load_system", "Plan": "load_plan"}
"""Functions that read a document, by the name of its class."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def checks_documents(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that rejects other values in place of a `System` or a `Plan`.

    Raises:
        SpecError: an argument is not of the annotated class; the message says how to read a document.
    """
    parameters = inspect.signature(function).parameters
    allowed = {name: _classes(parameter.annotation) for name, parameter in parameters.items()}
    checked = {name: kinds for name, kinds in allowed.items() if kinds and kinds[0].__name__ in READERS}

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for name, value in {**dict(zip(parameters, args, strict=False)), **kwargs}.items():
            if not isinstance(value, checked.get(name, object)):
                text = _problem(value, [kind.__name__ for kind in checked[name] if kind.__name__ in READERS])
                raise SpecError(f"{function.__name__}: {name} {text}")
        return function(*args, **kwargs)

    return call


def _classes(annotation: object) -> tuple[type, ...]:
    """Return the classes of an annotation such as ``System | None``."""
    return tuple(kind for kind in get_args(annotation) or (annotation,) if isinstance(kind, type))


def _problem(value: object, kinds: list[str]) -> str:
    readable = isinstance(value, str | os.PathLike | Mapping)
    shown = repr(os.fspath(value)) if isinstance(value, str | os.PathLike) else f"a {type(value).__name__}"
    argument = shown if isinstance(value, str | os.PathLike) else "..."
    calls = " or ".join(f"{READERS[kind]}({argument})" for kind in kinds)
    return f"must be a {' or a '.join(kinds)}, not {shown}; " + (
        f"pass {calls}" if readable else f"read it with {calls}"
    )
