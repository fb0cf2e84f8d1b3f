"""Reader of CSV files: the fields of each row by column, with file and line for messages."""

import csv
import os
from collections.abc import Callable, Iterator

from optimizer.errors import SpecError
from optimizer.quantities import counted
from optimizer.schema.files import lines_of, read_text


def csv_rows(
    path: str | os.PathLike[str], column_of: Callable[[str, list[str]], str], required: str = ""
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row that is not empty: its file and line as text, and its fields by column.

    Args:
        path: the file; its first line is the header.
        column_of: function that converts a heading to a column name, given all headings.
        required: name of a required column, if any.

    Raises:
        SpecError: the file is not readable or not CSV, the header is invalid, or a row has another length.
    """
    rows = csv.reader(lines_of(read_text(path)), strict=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        try:
            header = _header(names, column_of, required)
        except SpecError as error:
            raise SpecError(f"{path}:1: {error}") from None
        for row in rows:
            if not any(field.strip() for field in row):
                continue
            place = f"{path}:{rows.line_num}"
            if len(row) != len(header):
                raise SpecError(f"{place}: {counted(len(row), 'field')}, the header has {len(header)}")
            yield place, dict(zip(header, (field.strip(" \t") for field in row), strict=True))
    except csv.Error as error:
        raise SpecError(f"{path}:{rows.line_num}: not valid CSV: {error}") from None


def _header(names: list[str], column_of: Callable[[str, list[str]], str], required: str) -> list[str]:
    header = [column_of(name, names) for name in names]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise SpecError(f"column {twice!r} occurs twice")
    if required and required not in header:
        raise SpecError(f"the header must name the column {required!r}")
    return header
