"""Looks up values by paths of keys; a reader is a table of paths and units, by attribute of a record."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from optimizer.errors import FitError
from optimizer.fitting.checks import MAX_TOKENS
from optimizer.fitting.record import RunRecord, TokenStats

UNITS = {
    "ms": 1.0, "milliseconds": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6, "%": 0.01,
    "percent": 0.01, "portion": 1.0, "ratio": 1.0,
}  # fmt: skip
"""Factor to ms, or to shares from 0 to 1, by the name of a unit."""


class Path(NamedTuple):
    """Path of a number: keys separated by `/`; `*` is any key, and `**` any depth outside warm-ups."""

    keys: str
    unit: str = ""
    """Unit of a time or a share; with a leading `@`, the key in the same object that contains the unit."""


Table = Mapping[str, tuple[Path, ...]]
"""Paths at which versions of a tool state each attribute of a record; the preferred path is first."""


def plain(*paths: str) -> tuple[Path, ...]:
    """Return paths of numbers without a unit."""
    return tuple(Path(path) for path in paths)


def measured(unit: str, *paths: str) -> tuple[Path, ...]:
    """Return paths of times or shares in one unit, or next to a key that contains the unit (`@key`)."""
    return tuple(Path(path, unit) for path in paths)


def all_at(tree: Any, *paths: str) -> Iterator[Any]:
    """Yield all values at any of the paths."""
    for path in paths:
        yield from _all_at(tree, path.split("/"))


def _all_at(tree: Any, keys: Sequence[str]) -> Iterator[Any]:
    if not keys:
        yield tree
        return
    key, rest = keys[0], keys[1:]
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if key == "**":
        yield from _all_at(tree, rest)
        for name, item in inner:
            if not _is_warm_up(name, item):
                yield from _all_at(item, keys)
    elif key == "*":
        for _, item in inner:
            yield from _all_at(item, rest)
    elif isinstance(tree, dict) and tree.get(key) is not None:
        yield from _all_at(tree[key], rest)


def _is_warm_up(name: Any, item: Any) -> bool:
    inner = item if isinstance(item, dict) else {}
    return "warmup" in (name, inner.get("name")) or inner.get("exclude_from_results") is True


def find(tree: Any, *paths: str) -> Any:
    """Return the first value at any of the paths; None if there is none."""
    return next(all_at(tree, *paths), None)


def text_at(tree: Any, *paths: str) -> str | None:
    """Return the first text at any of the paths; None if there is none."""
    return next((value for value in all_at(tree, *paths) if isinstance(value, str) and value), None)


def number_in(value: Any) -> float | None:
    """Convert a number or its text to a float; return None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with suppress(ValueError):
        return float(value)
    return None


def read_numbers(tree: Any, table: Table, place: str) -> tuple[dict[str, float], dict[str, str]]:
    """Look up the numbers of a table in nested data; return them and the paths of their fields, by attribute.

    Raises:
        FitError: a unit is unknown.
    """
    values, fields = {}, {}
    for name, paths in table.items():
        for path in paths:
            numbers = map(number_in, all_at(tree, path.keys))
            value = next((value for value in numbers if value is not None and _is_told(name, value)), None)
            if value is not None:
                values[name] = value * _factor(tree, path, place)
                fields[name] = path.keys.rpartition("**/")[2].replace("/", ".")
                break
    return values, fields


def _is_told(name: str, value: float) -> bool:
    """Return whether a number is usable for an attribute; infinity is valid for rates and limits."""
    if name.endswith(("_deviation", "_least", "_most", "_p10", "_p90")):
        return 0 <= value <= MAX_TOKENS
    limits = name in {"users", "offered_rps"} and value == math.inf
    return math.isfinite(value) or limits or name.endswith(("_ms", "_mean", "duration_s"))


def _factor(tree: Any, path: Path, place: str) -> float:
    unit, key = path.unit, path.keys
    if unit.startswith("@"):
        stated = find(tree, f"{key.rpartition('/')[0]}/{unit[1:]}")
        unit = "ms" if stated is None else str(stated).lower().removesuffix("/token")
    if unit and unit not in UNITS:
        known = ", ".join(UNITS)
        raise FitError(f"{place}: {key.replace('/', '.')}: the unit {unit!r} is unknown; known are {known}")
    return UNITS[unit] if unit else 1.0


LENGTHS = ("mean", "deviation", "least", "most", "p10", "p90", "total")
"""Suffixes of attributes that begin with `prompt_` or `output_` in a table."""


def record(tree: Any, table: Table, place: str, **more: Any) -> RunRecord:
    """Read the record of a run from nested data.

    Args:
        tree: nested dicts and lists.
        table: paths of the attributes; those of `prompt` and `output` have the suffixes `LENGTHS`.
        place: name of the run for messages.
        more: further attributes, which take precedence unless they are None.

    Raises:
        FitError: a unit is unknown.
    """
    values, fields = read_numbers(tree, table, place)
    count = values.get("completed")
    lengths: dict[str, Any] = {"prompt": _lengths(values, "prompt", count)}
    lengths["output"] = _lengths(values, "output", count)
    lengths |= {name: value for name, value in values.items() if name.partition("_")[0] not in lengths}
    cached = lengths.pop("cached_tokens", None)
    if cached is not None and lengths["prompt"].mean:
        lengths.setdefault("cached_share", cached / lengths["prompt"].mean)
    lengths |= {name: value for name, value in more.items() if value is not None}
    return RunRecord(place, fields, **lengths)


def _lengths(values: Mapping[str, float], name: str, count: float | None) -> TokenStats:
    """Return length statistics from a mean or total, and from a deviation or 10th and 90th percentiles."""
    mean, deviation, least, most, low, high, total = (values.get(f"{name}_{suffix}") for suffix in LENGTHS)
    if mean is None and total is not None and count:
        mean = total / count
    if deviation is None and low is not None and high is not None and high > low:
        deviation = (high - low) / 0.8 / math.sqrt(12)
    return TokenStats(mean, deviation, least, most)
