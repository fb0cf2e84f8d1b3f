"""Formats a plan as a table for notebooks and `print`: pools, and servers without pools.

The functions take rows of plain values and pools, not plans.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from optimizer.kinds.table import kind_of_pool, kinds_of, shown_in
from optimizer.money import cost_amount, cost_unit
from optimizer.quantities import quantity, share_text
from optimizer.section import RPM, Column, Paragraph, Section, name, table, words

MARK = " ~"
"""Suffix of the accelerator of a pool whose token times are estimated, if those of other pools are not."""
_ALERT = ' style="color:#b3261e;font-weight:600"'
"""HTML style of the row of a server that is not fully served."""

Row = Mapping[str, Any]


def are_mixed(pools: Iterable[Any]) -> bool:
    """Return whether the token times of some pools are estimated, and those of others are not.

    Only then are estimated ones marked; if all are, a note says so.
    """
    return len({pool.estimated is None for pool in pools}) > 1


def notebook_table(caption: str, rows: Sequence[Row], currency: str | None) -> str:
    """Return the rows of a plan as an HTML table; all texts are escaped.

    Args:
        caption: text above the table.
        rows: fields of pools by Python name, plus `server`, `served_fraction`, `reason` and `pool`; `pool` is
            None for a server without pools.
        currency: currency of the costs; None selects cents/h.
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


def plan_section(caption: str, rows: Sequence[Row], currency: str | None) -> Section:
    """Return the rows of a plan as a section for a terminal; arguments as for `notebook_table`."""
    columns = _columns(rows, currency)
    return table("", columns, rows, "allocations", text=[Paragraph(caption)])


def _cell(column: Column, row: Row) -> str:
    style = ' style="text-align:right"' if column.content == "number" else ""
    return f"<td{style}>{escape(column.value(row))}</td>"


def _columns(rows: Sequence[Row], currency: str | None) -> list[Column]:
    """Return the columns of the table; metrics and targets only if a pool has them."""
    pools = [row["pool"] for row in rows if row["pool"] is not None]
    mark = MARK if are_mixed(pools) else ""
    has_targets = any(pool.other_targets for pool in pools)
    figures = [
        Column(
            f"mean {shown.heading}", partial(_figure, shown.metric), shown.unit, rank=5 if has_targets else 2
        )
        for shown in shown_in("notebook", kinds_of(pools) if pools else ())
    ]
    if has_targets:
        figures.append(words("targets (limits)", _targets))
    return [
        name("server", lambda row: row["server"]),
        name("accelerator", lambda row: (row["accelerator"] or "") + mark * bool(row.get("estimated"))),
        Column("replicas", lambda row: f"{row['num_replicas']:,}"),
        Column("load", lambda row: quantity(row["arrival_rate_rpm"]), RPM, rank=3),
        Column("capacity", lambda row: quantity(row["max_arrival_rate_rpm"]), RPM, rank=4),
        *figures,
        Column("cost", lambda row: cost_amount(row["cost_cents_per_h"], currency), cost_unit(currency)),
        Column("served", lambda row: share_text(row["served_fraction"])),
        words("reason", lambda row: row["reason"] or "", none=""),
    ]


def _figure(metric: str, row: Row) -> str:
    pool = row["pool"]
    shown = None if pool is None else kind_of_pool(pool).shown("notebook").get(metric)
    return "" if shown is None else shown.text(row[shown.field])


def _targets(row: Row) -> str:
    pool = row["pool"]
    return ", ".join(figure.text for figure in (() if pool is None else pool.other_targets))
