"""A plan as a notebook shows it: an HTML table of its pools, and of the servers without any.

Takes rows of plain values, knows no plan.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from optimizer.money import cost_amount, cost_unit
from optimizer.quantities import quantity, share_text

MARK = " ~"
"""Behind the name of an accelerator whose token times are estimated."""
_ALERT = ' style="color:#b3261e;font-weight:600"'
"""Of the row of a server that is not served in full."""

Row = Mapping[str, Any]


class _Column(NamedTuple):
    heading: str
    text: Callable[[Row], str]
    numeric: bool = True


def notebook_table(caption: str, rows: Sequence[Row], currency: str | None) -> str:
    """Return rows as an HTML table; names are text, whatever they hold.

    Args:
        caption: text above the table.
        rows: the fields of pools by their Python names, with `server`, `served_fraction` and `reason`.
        currency: of the costs; None: cents/h.
    """
    columns = _columns(rows, currency)
    head = "".join(f"<th>{escape(column.heading)}</th>" for column in columns)
    body = "".join(
        f"<tr{_ALERT if row['reason'] else ''}>{''.join(_cell(column, row) for column in columns)}</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(column: _Column, row: Row) -> str:
    style = ' style="text-align:right"' if column.numeric else ""
    return f"<td{style}>{escape(column.text(row))}</td>"


def _columns(rows: Sequence[Row], currency: str | None) -> list[_Column]:
    """Return the columns; those of latencies and targets only if some pool has any."""
    pools = [row for row in rows if row["accelerator"] is not None]
    together = [row for row in pools if _answers_together(row)]
    latencies = []
    if len(together) < len(pools):
        latencies += [_Column("mean ITL [ms]", _of_tokens("itl_ms", 1))]
        latencies += [_Column("mean TTFT [ms]", _of_tokens("ttft_ms", 0))]
    if together:
        latencies.append(_Column("mean latency [ms]", _latency))
    if any(row["targets"] for row in pools):
        latencies.append(_Column("targets (limits)", _targets, numeric=False))
    return [
        _Column("server", lambda row: row["server"], numeric=False),
        _Column("accelerator", _accelerator, numeric=False),
        _Column("replicas", lambda row: f"{row['num_replicas']:,}"),
        _Column("load [req/min]", lambda row: quantity(row["arrival_rate_rpm"])),
        _Column("capacity [req/min]", lambda row: quantity(row["max_arrival_rate_rpm"])),
        *latencies,
        _Column(f"cost [{cost_unit(currency)}]", lambda row: cost_amount(row["cost_cents_per_h"], currency)),
        _Column("served", lambda row: share_text(row["served_fraction"])),
        _Column("reason", lambda row: row["reason"] or "", numeric=False),
    ]


def _accelerator(row: Row) -> str:
    return f"{row['accelerator'] or ''}{MARK if row.get('estimated') else ''}"


def _answers_together(row: Row) -> bool:
    """Return whether a pool is of a batch server, whose requests have no tokens."""
    return row.get("batch_window_ms") is not None


def _of_tokens(field: str, digits: int) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        return "" if row["accelerator"] is None or _answers_together(row) else f"{row[field]:,.{digits}f}"

    return text


def _latency(row: Row) -> str:
    return f"{row['ttft_ms']:,.0f}" if _answers_together(row) else ""


def _targets(row: Row) -> str:
    return ", ".join(figure.text for figure in row.get("targets") or ())
