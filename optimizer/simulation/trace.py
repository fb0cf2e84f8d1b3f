"""Reader of recorded requests in the public Azure format: TIMESTAMP, ContextTokens, GeneratedTokens.

Timestamps are dates with times, or plain seconds. Rows can have any order; the first request gets time zero.
"""

import csv
import os
from pathlib import Path

import numpy as np

from optimizer.documents import MAX_TOKENS
from optimizer.errors import SpecError
from optimizer.simulation.requests import Requests
from optimizer.units import UnitError, time_s

COLUMNS = ("timestamp", "contexttokens", "generatedtokens")
"""Columns that the header must have, in any case; other columns are ignored."""


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
    rows = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(rows, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise SpecError(
            f"{path}: no column {missing[0]!r}; the first line must name TIMESTAMP, ContextTokens and "
            "GeneratedTokens"
        )
    places = [header.index(name) for name in COLUMNS]
    found = [_request(row, places, f"{path}: line {rows.line_num}") for row in rows if row]
    if not found:
        raise SpecError(f"{path}: no requests")
    table = np.array(found)
    table = table[np.argsort(table[:, 0], kind="stable")]
    arrival_ms = 1000 * (table[:, 0] - table[0, 0])
    return Requests(table[:, 1].astype(np.int64), table[:, 2].astype(np.int64), arrival_ms)


def _request(row: list[str], places: list[int], line: str) -> tuple[float, int, int]:
    """Return the time [s], the prompt length and the output length [tokens] of a row.

    Args:
        row: the cells of the row.
        places: indices of the three columns.
        line: file and line, for messages.
    """
    if len(row) <= max(places):
        raise SpecError(f"{line}: {len(row)} values; give one for each column of the first line")
    when, prompt, answer = (row[place].strip() for place in places)
    return (
        _seconds(when, line),
        _tokens(prompt, 0, "ContextTokens", line),
        _tokens(answer, 1, "GeneratedTokens", line),
    )


def _seconds(text: str, line: str) -> float:
    try:
        return time_s(text)
    except UnitError as error:
        raise SpecError(f"{line}: TIMESTAMP: {error}") from None


def _tokens(text: str, least: int, name: str, line: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= MAX_TOKENS:
        raise SpecError(f"{line}: {name}: must be an integer from {least} to {MAX_TOKENS}, not {text!r}")
    return int(text)
