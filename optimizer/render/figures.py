"""Columns of the metrics that each kind of replica shows for its pools.

A fleet with several kinds has the columns of all; pools whose kind lacks a metric show it as missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from optimizer.documents import Document
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.table import kind_of_pool, shown_in
from optimizer.plan import TargetFigure
from optimizer.quantities import precise, significant
from optimizer.queueing.measures import statistic_of
from optimizer.section import NOTHING, Column, FormattedValue
from optimizer.studies.reports.overview import PoolRow

Value = FormattedValue | float | str | None
MISSING = FormattedValue(NOTHING, None)


def column(shown: Shown, *, alone: bool, sides: tuple[str, str] | None = None) -> Column:
    """Return the column of a metric, without values, for a fleet of one or of several kinds."""
    return Column(
        shown.heading,
        unit=shown.unit,
        form=shown.form,
        rank=shown.rank if alone or shown.rank_beside is None else shown.rank_beside,
        kind="name" if shown.is_text else "number",
        none="" if shown.least else NOTHING,
        sides=sides,
    )


def columns_of(
    table: TableName, kinds: Sequence[Kind], sides: tuple[str, str] | None = None
) -> dict[str, Column]:
    """Return the columns, without values, of a table for some kinds, by metric."""
    return {
        shown.metric: column(shown, alone=len(kinds) == 1, sides=sides) for shown in shown_in(table, kinds)
    }


def plan_columns(kinds: Sequence[Kind], pools: Iterable[PoolRow]) -> dict[str, list[Column]]:
    """Return the columns of a plan's table by metric: value, then target or percentiles."""
    pools, alone = list(pools), len(kinds) == 1
    return {
        shown.metric: [
            column(shown, alone=alone)._replace(of=partial(_value, shown)),
            *([_target_column(shown)] if shown.target else []),
            *_percentiles(shown, pools, alone=alone),
        ]
        for shown in shown_in("plan", kinds)
    }


def _value(shown: Shown, pool: PoolRow) -> Value:
    """Return the mean, with its limit if any, or the percentile that a target limits instead."""
    mine = of_pool(pool, shown.metric, "plan")
    if mine is None:
        return FormattedValue("", None) if shown.least else MISSING
    mean: float | str | None = getattr(pool, mine.field)
    if mine.percentile_ranks:
        return _beside_limit(mine, "mean", pool) or mean
    for figure in measured_in_columns(pool, mine):
        text = f"{statistic_of(figure.measure)} {mine.text(figure.value)} ({precise(figure.limit)})"
        return FormattedValue(text, mean)
    is_little = mine.least and isinstance(mean, float) and mean <= mine.least
    return None if is_little else mean


def _target_column(shown: Shown) -> Column:
    target = partial(_target, shown)
    return Column(f"{shown.heading} target", target, shown.unit, significant(6), rank=7, none="none")


def _target(shown: Shown, pool: PoolRow) -> Value:
    mine = of_pool(pool, shown.metric, "plan")
    return MISSING if mine is None else getattr(pool, mine.target_field)


def _percentiles(shown: Shown, pools: Sequence[PoolRow], *, alone: bool) -> Iterator[Column]:
    """Yield a column for each percentile that has a target, if percentiles have their own columns."""
    if shown.percentile_ranks:
        base = column(shown, alone=alone)._replace(rank=shown.percentile_ranks[0 if alone else 1])
        for percentile in percentiles_of(shown, pools, "plan"):
            of = partial(_beside_limit, shown, f"p{percentile:g}")
            yield base._replace(name=f"p{percentile:g} {shown.heading}", of=of)


def _beside_limit(shown: Shown, statistic: str, pool: PoolRow) -> FormattedValue | None:
    """Return a measured value of a pool with its limit; None if there is no such target."""
    for figure in pool.measured(shown.metric) if of_pool(pool, shown.metric, "plan") else ():
        if statistic_of(figure.measure) == statistic:
            return FormattedValue(f"{shown.text(figure.value)} ({precise(figure.limit)})", figure.value)
    return None


def of_pool(pool: Document, metric: str, table: TableName) -> Shown | None:
    """Return the display settings of a pool's metric in a table; None if its kind lacks it."""
    return kind_of_pool(pool).shown(table).get(metric)


def percentiles_of(shown: Shown, pools: Iterable[PoolRow], table: TableName) -> list[float]:
    """Return the percentiles of a metric that pools have targets for, in ascending order."""
    mine = (pool for pool in pools if of_pool(pool, shown.metric, table))
    found = {statistic_of(figure.measure) for pool in mine for figure in pool.measured(shown.metric)}
    return sorted(float(statistic.removeprefix("p")) for statistic in found - {"mean"})


def measured_in_columns(pool: PoolRow, shown: Shown) -> tuple[TargetFigure, ...]:
    """Return the targets on a metric that columns show: all, or the one that replaces the mean."""
    found = pool.measured(shown.metric)
    return found if shown.percentile_ranks else found[:1]


def other_targets(pool: PoolRow, table: TableName) -> list[TargetFigure]:
    """Return the targets that have no column, with their values."""
    metrics = kind_of_pool(pool).shown(table).values()
    shown = [figure for metric in metrics for figure in measured_in_columns(pool, metric)]
    return [figure for figure in pool.targets if figure not in shown]
