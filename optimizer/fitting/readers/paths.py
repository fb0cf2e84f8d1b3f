"""Lookups along paths of keys: a reader is a table of places with their units, by attribute of a record."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from optimizer.errors import FitError
from optimizer.fitting.record import RunRecord, TokenStats

TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
TO_SHARE = {"%": 0.01, "percent": 0.01, "portion": 1.0, "ratio": 1.0}


class Path(NamedTuple):
    """Place of a number: keys separated by `/`; `*` is any key, `**` any depth outside warm-up phases."""

    keys: str
    factors: Mapping[str, float] | None = None
    """Factor by unit."""
    unit: str = ""
    """Unit of the number; with a leading `@`, the key beside it that states the unit."""


Table = Mapping[str, tuple[Path, ...]]
"""By attribute of a record: the places where versions of a tool state it, the preferred one first."""


def plain(*paths: str) -> tuple[Path, ...]:
    """Return places of numbers without a unit."""
    return tuple(Path(path) for path in paths)


def time(unit: str, *paths: str) -> tuple[Path, ...]:
    """Return places of times in one unit, or with the unit at a key beside them (`@key`)."""
    return tuple(Path(path, TO_MS, unit) for path in paths)


def share(unit: str, *paths: str) -> tuple[Path, ...]:
    """Return places of shares in one unit, or with the unit at a key beside them (`@key`)."""
    return tuple(Path(path, TO_SHARE, unit) for path in paths)


def find_all(tree: Any, keys: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path of keys."""
    if not keys:
        yield tree
        return
    key, rest = keys[0], keys[1:]
    inner = list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    if key == "**":
        yield from find_all(tree, rest)
        for item in inner:
            if not (isinstance(item, dict) and item.get("name") == "warmup"):
                yield from find_all(item, keys)
    elif key == "*":
        for item in inner:
            yield from find_all(item, rest)
    elif isinstance(tree, dict) and tree.get(key) is not None:
        yield from find_all(tree[key], rest)


def find(tree: Any, *paths: str) -> Any:
    """Return the first value at paths of keys, None if there is none."""
    return next((value for path in paths for value in find_all(tree, path.split("/"))), None)


def number_of(value: Any) -> float | None:
    """Return a number, or a number written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with suppress(ValueError):
        return float(value)
    return None


def read_numbers(tree: Any, table: Table, place: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers of a table that a tree has, and the fields that state them.

    Raises:
        FitError: a unit is unknown.
    """
    values, fields = {}, {}
    for name, paths in table.items():
        for path in paths:
            found = (number_of(value) for value in find_all(tree, path.keys.split("/")))
            value = next((value for value in found if value is not None and _is_told(name, value)), None)
            if value is not None:
                values[name] = value * _factor(tree, path, place)
                fields[name] = path.keys.rpartition("**/")[2].replace("/", ".")
                break
    return values, fields


def _is_told(name: str, value: float) -> bool:
    """Return whether a number says something: infinity does as a rate or a limit, any as a time or a mean."""
    if name.endswith(("_ms", "_mean", "_rps", "duration_s")):
        return True
    return math.isfinite(value) or (name == "users" and value == math.inf)


def _factor(tree: Any, path: Path, place: str) -> float:
    if path.factors is None:
        return 1.0
    unit = path.unit
    if unit.startswith("@"):
        parent = path.keys.rpartition("/")[0]
        unit = str(find(tree, f"{parent}/{unit[1:]}") or next(iter(path.factors))).removesuffix("/token")
    if unit not in path.factors:
        known = ", ".join(path.factors)
        raise FitError(
            f"{place}: {path.keys.replace('/', '.')}: the unit {unit!r} is unknown; known are {known}"
        )
    return path.factors[unit]


LENGTHS = ("mean", "deviation", "least", "most", "p10", "p90", "total")
"""Suffixes of `prompt_` and `output_` in a table."""


def record(tree: Any, table: Table, place: str, **more: Any) -> RunRecord:
    """Return what a tree says about a run.

    Args:
        tree: nested dicts and lists.
        table: places of the attributes; those of `prompt` and `output` have the suffixes `LENGTHS`.
        place: the run, for messages.
        more: further attributes, which take precedence unless they are None.

    Raises:
        FitError: a unit is unknown.
    """
    values, fields = read_numbers(tree, table, place)
    count = values.get("completed")
    found: dict[str, Any] = {"prompt": _lengths(values, "prompt", count)}
    found["output"] = _lengths(values, "output", count)
    found |= {name: value for name, value in values.items() if name.partition("_")[0] not in found}
    cached = found.pop("cached_tokens", None)
    if cached is not None and found["prompt"].mean:
        found.setdefault("cached_share", cached / found["prompt"].mean)
    found |= {name: value for name, value in more.items() if value is not None}
    return RunRecord(place, fields, **found)


def _lengths(values: Mapping[str, float], name: str, count: float | None) -> TokenStats:
    """Return lengths from a mean or a total, and from a deviation or the 10th and 90th percentiles."""
    mean, deviation, least, most, low, high, total = (values.get(f"{name}_{suffix}") for suffix in LENGTHS)
    if mean is None and total is not None and count:
        mean = total / count
    if deviation is None and low is not None and high is not None and high > low:
        deviation = (high - low) / 0.8 / math.sqrt(12)
    return TokenStats(mean, deviation, least, most)
