"""Reader of recorded requests in public formats: CSV files of Azure and BurstGPT, JSON lines of Mooncake.

Azure: TIMESTAMP, ContextTokens, GeneratedTokens; BurstGPT: Timestamp, Request tokens, Response tokens; both
with an optional column CachedTokens. Timestamps are dates with times, or plain seconds. Mooncake: timestamp
[ms], input_length, output_length; its block hashes are not read, because they are not hits. Rows can have any
order; the first request gets time zero.
"""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from optimizer.documents import MAX_TOKENS
from optimizer.errors import SpecError
from optimizer.simulation.requests import Requests
from optimizer.units import UnitError, time_s


class _Format(NamedTuple):
    """Columns of a format: time, prompt tokens and output tokens, as in its header."""

    columns: tuple[str, str, str]
    leaves_out_empty: bool = False
    """Whether requests with 0 output tokens are recorded although they failed."""


FORMATS = (
    _Format(("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    _Format(("Timestamp", "Request tokens", "Response tokens"), leaves_out_empty=True),
)
"""Formats of CSV files; the header can have further columns, in any case."""
CACHED = "CachedTokens"
"""Optional column: prompt tokens found in the prefix cache."""
_JSON = _Format(("timestamp", "input_length", "output_length"))
_Row = tuple[float, int, int, int]


def read_trace(path: str | os.PathLike[str]) -> Requests:
    """Read the recorded requests in a file, sorted by time.

    Raises:
        SpecError: the file cannot be read, or a row is invalid; the message names file and line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    read = _json_rows if text.lstrip().startswith("{") else _csv_rows
    trace = list(read(text, str(path)))
    if not trace:
        raise SpecError(f"{path}: no requests")
    table = np.array(trace)
    table = table[np.argsort(table[:, 0], kind="stable")]
    arrival_ms = 1000 * (table[:, 0] - table[0, 0])
    prompts, answers, cached = table[:, 1:].astype(np.int64).T
    return Requests(
        prompts.copy(), answers.copy(), arrival_ms, cached_tokens=cached.copy() if cached.any() else None
    )


def _csv_rows(text: str, path: str) -> Iterator[_Row]:
    rows = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(rows, [])]
    known = next((form for form in FORMATS if {*map(str.lower, form.columns)} <= {*header}), None)
    if known is None:
        missing = next(name for name in FORMATS[0].columns if name.lower() not in header)
        raise SpecError(
            f"{path}: no column {missing.lower()!r}; the first line must name TIMESTAMP, ContextTokens and "
            "GeneratedTokens, or Timestamp, Request tokens and Response tokens"
        )
    names = [*known.columns, *([CACHED] if CACHED.lower() in header else [])]
    places = [header.index(name.lower()) for name in names]
    for row in rows:
        line = f"{path}: line {rows.line_num}"
        if not row:
            continue
        if len(row) <= max(places):
            raise SpecError(f"{line}: {len(row)} values; give one for each column of the first line")
        when, prompt, answer, *cached = (row[place].strip() for place in places)
        if known.leaves_out_empty and answer == "0":
            continue  # a request that failed
        yield (
            _seconds(when, known.columns[0], line),
            *_lengths((prompt, answer, cached[0] if cached and cached[0] else "0"), known.columns[1:], line),
        )


def _json_rows(text: str, path: str) -> Iterator[_Row]:
    for number, one in enumerate(text.splitlines(), start=1):
        if not one.strip():
            continue
        line = f"{path}: line {number}"
        try:
            value = json.loads(one)
        except ValueError:
            raise SpecError(f"{line}: not JSON; give one object with {', '.join(_JSON.columns)}") from None
        missing = [name for name in _JSON.columns if not isinstance(value, dict) or name not in value]
        if missing:
            raise SpecError(f"{line}: {missing[0]}: missing; give {', '.join(_JSON.columns)}")
        when, prompt, answer = (value[name] for name in _JSON.columns)
        if isinstance(when, bool) or not isinstance(when, int | float) or not when >= 0:
            raise SpecError(f"{line}: {_JSON.columns[0]}: must be a number of milliseconds, not {when!r}")
        cached = str(value.get("cached_tokens", 0))
        yield when / 1000, *_lengths((str(prompt), str(answer), cached), _JSON.columns[1:], line)


def _lengths(texts: tuple[str, str, str], names: tuple[str, ...], line: str) -> tuple[int, int, int]:
    """Return prompt, output and cached tokens of a row.

    Args:
        texts: the three numbers.
        names: names of the first two columns.
        line: file and line, for messages.
    """
    prompt, answer = _tokens(texts[0], 0, names[0], line), _tokens(texts[1], 1, names[1], line)
    cached = _tokens(texts[2], 0, CACHED, line)
    if cached > prompt:
        raise SpecError(f"{line}: {CACHED}: {cached} exceeds the {prompt} tokens of the prompt")
    return prompt, answer, cached


def _seconds(text: str, name: str, line: str) -> float:
    try:
        return time_s(text)
    except UnitError as error:
        raise SpecError(f"{line}: {name}: {error}") from None


def _tokens(text: str, least: int, name: str, line: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= MAX_TOKENS:
        raise SpecError(f"{line}: {name}: must be an integer from {least} to {MAX_TOKENS}, not {text!r}")
    return int(text)
