"""The columns of what kinds of replicas show of their pools, and the values that stand in them.

Takes pools and kinds, gives columns with a function each that takes a pool. A pool of a kind that has no such
figure shows that there is none; fleets of several kinds have the columns of all.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from optimizer.documents import Document
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.table import kind_of_pool, shown_in
from optimizer.plan import TargetFigure
from optimizer.quantities import precise, significant
from optimizer.queueing.measures import label_of
from optimizer.render.columns import NOTHING, Column
from optimizer.render.tables import Said
from optimizer.studies.reports.overview import PoolRow

Value = Said | float | str | None
Filled = tuple[Column, Callable[[PoolRow], Value]]
"""A column, and what stands in it."""
MISSING = Said(NOTHING, None)


def column(shown: Shown, *, alone: bool, sides: tuple[str, str] | None = None) -> Column:
    """Return the column of a figure, alone or beside another kind."""
    return Column(
        shown.heading,
        shown.unit,
        shown.form,
        shown.rank if alone or shown.rank_beside is None else shown.rank_beside,
        "name" if shown.is_text else "number",
        "" if shown.least else NOTHING,
        sides,
    )


def columns_of(
    table: TableName, kinds: Sequence[Kind], sides: tuple[str, str] | None = None
) -> dict[str, Column]:
    """Return the columns of what a table shows of some kinds, by metric."""
    return {
        shown.metric: column(shown, alone=len(kinds) == 1, sides=sides) for shown in shown_in(table, kinds)
    }


def plan_columns(kinds: Sequence[Kind], pools: Iterable[PoolRow]) -> dict[str, list[Filled]]:
    """Return by metric the columns of a plan's table: a figure, then its target or its percentiles."""
    pools, alone = list(pools), len(kinds) == 1
    return {
        shown.metric: [
            (column(shown, alone=alone), partial(_value, shown)),
            *([(_target_column(shown), partial(_target, shown))] if shown.target else []),
            *_percentiles(shown, pools, alone=alone),
        ]
        for shown in shown_in("plan", kinds)
    }


def _value(shown: Shown, pool: PoolRow) -> Value:
    """Return the mean; a percentile that has a target in its place, or the limit on the mean beside it."""
    mine = of_pool(pool, shown.metric, "plan")
    if mine is None:
        return Said("", None) if shown.least else MISSING
    mean: float | str | None = getattr(pool, mine.field)
    if mine.percentile_ranks:
        return _beside_limit(mine, label_of(mine.metric), pool) or mean
    for figure in measured_in_columns(pool, mine):
        text = f"{figure.measure.split()[0]} {mine.text(figure.value)} ({precise(figure.limit)})"
        return Said(text, mean)
    is_little = mine.least and isinstance(mean, float) and mean <= mine.least
    return None if is_little else mean


def _target_column(shown: Shown) -> Column:
    return Column(f"{shown.heading} target", shown.unit, significant(6), rank=7, none="none")


def _target(shown: Shown, pool: PoolRow) -> Value:
    mine = of_pool(pool, shown.metric, "plan")
    return MISSING if mine is None else getattr(pool, mine.target_field)


def _percentiles(shown: Shown, pools: Sequence[PoolRow], *, alone: bool) -> Iterator[Filled]:
    """Yield a column for each percentile that a target names, where percentiles have columns of their own."""
    if shown.percentile_ranks:
        base = column(shown, alone=alone)._replace(rank=shown.percentile_ranks[0 if alone else 1])
        for percentile in percentiles_of(shown, pools, "plan"):
            heading = base._replace(name=f"p{percentile:g} {shown.heading}")
            yield heading, partial(_beside_limit, shown, f"p{percentile:g} {label_of(shown.metric)}")


def _beside_limit(shown: Shown, measure: str, pool: PoolRow) -> Said | None:
    """Return what is measured of a pool beside its limit; none where nothing is."""
    for figure in pool.targets if of_pool(pool, shown.metric, "plan") else ():
        if figure.measure == measure:
            return Said(f"{shown.text(figure.value)} ({precise(figure.limit)})", figure.value)
    return None


def of_pool(pool: Document, metric: str, table: TableName) -> Shown | None:
    """Return how a table shows a metric of a pool; none where its kind has none."""
    return kind_of_pool(pool).shown(table).get(metric)


def percentiles_of(shown: Shown, pools: Iterable[PoolRow], table: TableName) -> list[float]:
    """Return the percentiles of a metric that targets of pools name, in their order."""
    label = f" {label_of(shown.metric)}"
    mine = (pool for pool in pools if of_pool(pool, shown.metric, table))
    measures = {figure.measure for pool in mine for figure in pool.targets if figure.measure.endswith(label)}
    return sorted(float(measure.split()[0].removeprefix("p")) for measure in measures)


def measured_in_columns(pool: PoolRow, shown: Shown) -> tuple[TargetFigure, ...]:
    """Return what targets on a metric are about, as far as columns show it: all, or one for the mean."""
    found = pool.measured(shown.metric)
    return found if shown.percentile_ranks else found[:1]


def other_targets(pool: PoolRow, table: TableName) -> list[TargetFigure]:
    """Return what is measured against targets that have no column."""
    metrics = kind_of_pool(pool).shown(table).values()
    shown = [figure for metric in metrics for figure in measured_in_columns(pool, metric)]
    return [figure for figure in pool.targets if figure not in shown]
