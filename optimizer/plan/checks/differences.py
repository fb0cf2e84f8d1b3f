"""Finds differences between the recomputed and the stated values of a plan."""

import math
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel

from optimizer.quantities import precise
from optimizer.tolerances import SAME


def close(a: float, b: float, absolute: float = SAME) -> bool:
    """Return whether two numbers are equal up to a relative rounding error or an absolute difference."""
    return math.isclose(a, b, rel_tol=SAME, abs_tol=absolute)


def differences(true: object, stated: object, path: str, absolute: float = SAME) -> Iterator[str]:
    """Yield a line for every value that differs: ``limits.0.used is 1600, the plan says 0``.

    Args:
        true: the recomputed value: a document, or the value of a field.
        stated: the value in the plan.
        path: path of the value in the plan, with JSON keys.
        absolute: absolute difference up to which numbers count as equal.
    """
    if true == stated:
        return
    inner = _inner(true, stated, path)
    if inner is not None:
        for a, b, place in inner:
            yield from differences(a, b, place, absolute)
    elif not _same_number(true, stated, absolute):
        yield f"{path} is {_shown(true)}, the plan says {_shown(stated)}"


def _inner(true: object, stated: object, path: str) -> list[tuple[object, object, str]] | None:
    """Return pairs of inner values with their paths; None if the values have none or differ in shape."""
    match true, stated:
        case BaseModel(), BaseModel():
            fields = [(name, field.alias or name) for name, field in type(true).model_fields.items()]
            return [(getattr(true, n), getattr(stated, n, None), f"{path}.{alias}") for n, alias in fields]
        case Mapping(), Mapping():
            # Items that only one of the two has differ, too.
            names = [*true, *(name for name in stated if name not in true)]
            return [(true.get(name), stated.get(name), f"{path}.{name}") for name in names]
        case tuple() | list(), tuple() | list() if len(true) == len(stated):
            return [(a, b, f"{path}.{i}") for i, (a, b) in enumerate(zip(true, stated, strict=True))]
    return None


def _same_number(true: object, stated: object, absolute: float) -> bool:
    # A bool is an int in Python, but no number here.
    if isinstance(true, bool) or isinstance(stated, bool):
        return False
    if not isinstance(true, int | float) or not isinstance(stated, int | float):
        return False
    return close(true, stated, absolute)


def _shown(value: object) -> str:
    match value:
        case bool() | None:
            return {None: "absent", True: "true", False: "false"}[value]
        case float() | int():
            return precise(value)
        case str():
            return repr(value)
        case Mapping() | BaseModel():
            return "given"
        case Sequence():
            return f"a list of {len(value)}"
    return str(value)
