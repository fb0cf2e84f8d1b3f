"""Plans as rows: for data frames, and for notebooks as HTML. Takes plain values, knows no plan."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from optimizer.errors import MissingExtraError

Row = Mapping[str, object]


def data_frame(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    """Return rows as a pandas data frame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("pandas is not installed; pip install 'inferplan[pandas]'") from None
    return pd.DataFrame(list(rows), columns=list(columns))


def html_table(caption: str, rows: Sequence[Row], headings: Mapping[str, str]) -> str:
    """Return rows as an HTML table; names are text, whatever they hold.

    Args:
        caption: stands above the table.
        rows: values by column.
        headings: the columns that are shown, and what they are called.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings.values())
    body = "".join("<tr>" + "".join(_cell(row[column]) for column in headings) + "</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        return f'<td style="text-align:right">{text}</td>'
    return f"<td>{escape('' if value is None else str(value))}</td>"
