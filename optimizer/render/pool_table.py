"""Table of the pools of a plan for spreadsheets, with one row for each pool and target.

A row states a target with its statistic, value and limit, so that a value is never compared with the limit of
another statistic. Amounts that are summed, such as costs and cards, are only in the first row of a pool.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from optimizer.kinds.table import in_order, kind_of_pool
from optimizer.plan import TargetFigure
from optimizer.plan.document import EXTERNAL
from optimizer.queueing.measures import LATENCIES, MISSED, metric_of, statistic_of
from optimizer.render.money import Money
from optimizer.section import NOTHING, RPM, Column, Section, name, table
from optimizer.spec.system import System
from optimizer.studies.overview import EmptyRow, Overview, PoolRow, QueueRow

SHARE = "share"
"""Unit of fractions in headings."""
TITLE = "Pools and targets"
NO_TARGETS: Sequence[TargetFigure | None] = (None,)
"""Targets of a row that has none."""


class PoolTarget(NamedTuple):
    """A row of the table: a pool or a server without pools, and one of its targets."""

    row: PoolRow | EmptyRow
    served: float
    place: str
    """Accelerator, external service or shared cards on which the server runs; empty without any."""
    cost_cents_per_h: float
    is_first: bool = True
    target: TargetFigure | None = None


def pool_table(overview: Overview, system: System) -> Section:
    """Return the table of the pools of a plan and their targets; its columns are those that any row needs."""
    rows = [*_rows(overview, system)]
    pools = [row.row for row in rows if isinstance(row.row, PoolRow)]
    figures = [row.target for row in rows if row.target is not None]
    columns = _columns(Money.of(overview.plan), pools, figures)
    used = [column for column in columns if column.none or any(column.value(row) for row in rows)]
    return table(TITLE, used, rows, "allocations")


def _rows(overview: Overview, system: System) -> Iterator[PoolTarget]:
    plan = overview.plan
    shares = {item.server: item.served_fraction for item in plan.unserved}
    for pool in overview.placed:
        latencies = [figure for metric in LATENCIES for figure in pool.targets_on(metric)]
        others = [figure for figure in pool.other_targets if figure not in latencies]
        figures: list[TargetFigure | None] = [*latencies, *others]
        cost, served = pool.cost_cents_per_h, shares.get(pool.server, 1.0)
        for i, figure in enumerate(figures or NO_TARGETS):
            yield PoolTarget(pool, served, pool.accelerator, cost, i == 0, figure)
    for rented in plan.rented:
        server = system.servers[rented.server]
        row = EmptyRow.taken_from(server, server=server.name, priority=system.priority(server))
        yield PoolTarget(row, shares.get(server.name, 1.0), EXTERNAL, rented.cost_cents_per_h)
    for member in overview.queues:
        served = shares.get(member.server, 1.0)
        for figure in _of_member(member) or NO_TARGETS:
            yield PoolTarget(member, served, f"queue {member.queue}", 0.0, target=figure)
    rented_names = {item.server for item in plan.rented}
    for rows, place in ((overview.unplaced, "not served"), (overview.idle, "idle")):
        for empty in (row for row in rows if row.server not in rented_names):
            yield PoolTarget(empty, shares.get(empty.server, 1.0), place, 0.0)


def _of_member(row: QueueRow) -> list[TargetFigure]:
    """Return the targets of a member of a shared queue, with their values."""
    return [] if row.member is None else [*row.member.targets]


def _columns(money: Money, pools: Sequence[PoolRow], figures: Sequence[TargetFigure]) -> Iterator[Column]:
    yield name("server", lambda item: item.row.server, none=NOTHING)
    yield name("class", lambda item: item.row.service_class, none=NOTHING)
    yield name("model", lambda item: item.row.model, none=NOTHING)
    yield Column("priority", lambda item: item.row.priority)
    yield Column("served", lambda item: item.served, SHARE)
    yield name("accelerator", lambda item: item.place, none=NOTHING)
    for heading, field, unit in _SUMMED:
        yield Column(heading, partial(_summed, field), unit)
    if any(pool.power_w is not None for pool in pools):
        yield Column("power", partial(_summed, "power_w"), "W")
    yield money.column("cost", lambda item: item.cost_cents_per_h if item.is_first else None)
    for heading, field, unit in _SETTINGS:
        yield Column(heading, partial(_of_pool, field), unit, none="")
    yield from _means(pools)
    yield name("target", lambda item: _metric(item.target))
    yield name("statistic", lambda item: _statistic(item.target))
    for unit in dict.fromkeys(_unit(figure) for figure in figures):
        yield Column("value", partial(_number, "value", unit), unit)
        yield Column("limit", partial(_number, "limit", unit), unit)
    yield name("estimated", partial(_of_pool, "estimated"))
    yield name("measured", lambda item: "yes" if _of_pool("provenance", item) else None)
    yield name("outside", lambda item: "; ".join(_of_pool("outside", item) or ()))


_SUMMED = (
    ("replicas", "num_replicas", ""),
    ("cards", "cards", ""),
    ("load", "arrival_rate_rpm", RPM),
    ("capacity", "max_arrival_rate_rpm", RPM),
)
"""Heading, field and unit of the amounts of a pool that can be summed."""
_SETTINGS = (
    ("type", "type", ""),
    ("batch limit", "max_batch", "requests"),
    ("input", "in_tokens", "tokens"),
    ("output", "out_tokens", "tokens"),
    ("utilisation", "utilization", SHARE),
)
"""Heading, field and unit of other columns of pools."""


def _means(pools: Sequence[PoolRow]) -> Iterator[Column]:
    """Yield the columns of metrics: means, and settings that kinds of replicas show as metrics."""
    kinds = in_order({kind_of_pool(pool) for pool in pools})
    for shown in {shown.metric: shown for kind in kinds for shown in kind.metrics if shown.field}.values():
        is_share = callable(shown.form) or str(shown.form).endswith("%")
        heading = f"mean {shown.heading}" if shown.metric in {*LATENCIES, "wait"} else shown.heading
        unit = shown.unit or ("" if shown.is_text else SHARE if is_share else "requests")
        yield Column(heading, partial(_mean, shown.metric), unit, none="")


def _mean(metric: str, item: PoolTarget) -> Any:
    if not isinstance(item.row, PoolRow):
        return None
    known = (shown for shown in kind_of_pool(item.row).metrics if shown.metric == metric and shown.field)
    return next((getattr(item.row, shown.field) for shown in known), None)


def _of_pool(field: str, item: PoolTarget) -> Any:
    return getattr(item.row, field) if isinstance(item.row, PoolRow) else None


def _summed(field: str, item: PoolTarget) -> Any:
    """Return an amount of a pool in its first row, and 0 for a server without a pool; otherwise None."""
    return (_of_pool(field, item) or 0) if item.is_first else None


def _unit(figure: TargetFigure) -> str:
    metric = metric_of(figure.measure)
    return "" if metric is None else metric.unit


def _metric(figure: TargetFigure | None) -> str | None:
    if figure is None:
        return None
    metric = metric_of(figure.measure)
    return figure.measure if metric is None else metric.label


def _statistic(figure: TargetFigure | None) -> str | None:
    if figure is None:
        return None
    return "share" if figure.measure == MISSED.label else statistic_of(figure.measure)


def _number(field: str, unit: str, item: PoolTarget) -> float | None:
    """Return the value or the limit of the row's target, in the unit of its metric."""
    if item.target is None or _unit(item.target) != unit:
        return None
    metric = metric_of(item.target.measure)
    number: float = getattr(item.target, field) * (metric.scale if metric else 1.0)
    return number
