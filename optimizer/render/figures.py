"""Columns of tables with the metrics of pools.

Each kind of replica has its own metrics. A table for several kinds has the columns of all of them; a pool
whose kind lacks a metric shows it as missing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from optimizer.documents import Document
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.table import kind_of_pool, shown_in
from optimizer.plan import TargetFigure
from optimizer.quantities import precise, significant
from optimizer.queueing.measures import statistic_of
from optimizer.section import CSV_ONLY, NOTHING, Column, FormattedValue
from optimizer.studies.overview import PoolRow
from optimizer.studies.target_rows import target_share_of

Value = FormattedValue | float | str | None
MISSING = FormattedValue(NOTHING, None)
BINDING = 1
"""Column rank of the metric that is nearest to its limit in the most pools; the next metrics get the next
ranks.
"""
MAX_ALWAYS = 2
"""Maximum number of metrics with targets whose columns are never hidden."""
OTHER_STATISTIC = 7
"""Column rank of a metric's statistics that no target limits."""


def column(shown: Shown, *, alone: bool) -> Column:
    """Return the column of a metric, without its values.

    Args:
        shown: display settings of the metric.
        alone: whether all replicas of the table are of one kind.
    """
    return Column(
        shown.heading,
        unit=shown.unit,
        form=shown.form,
        rank=shown.rank if alone or shown.rank_beside is None else shown.rank_beside,
        content="name" if shown.is_text else "number",
        none="" if shown.least else NOTHING,
    )


def columns_of(table: TableName, kinds: Sequence[Kind]) -> dict[str, Column]:
    """Return the columns of a table for the given kinds of replicas, by metric, without their values."""
    return {shown.metric: column(shown, alone=len(kinds) == 1) for shown in shown_in(table, kinds)}


def plan_columns(kinds: Sequence[Kind], pools: Iterable[PoolRow]) -> dict[str, list[Column]]:
    """Return the columns of a plan's table by metric.

    A metric with targets has one column, with value, limit and share of its tightest target, which a narrow
    terminal never hides if there are at most `MAX_ALWAYS` such columns.
    """
    pools, alone = list(pools), len(kinds) == 1
    metrics = list(shown_in("plan", kinds))
    binding = Counter(_binding_metric(metrics, pool) for pool in pools)
    order = sorted((shown.metric for shown in metrics), key=lambda metric: -binding[metric])
    always = len(limited_metrics(kinds, pools)) <= MAX_ALWAYS
    return {
        shown.metric: list(
            _plan_columns(shown, pools, 0 if always else BINDING + order.index(shown.metric), alone=alone)
        )
        for shown in metrics
    }


def limited_metrics(kinds: Sequence[Kind], pools: Iterable[PoolRow]) -> list[Shown]:
    """Return the metrics of a plan's table on which any pool has a target."""
    metrics, pools = shown_in("plan", kinds), list(pools)
    return [shown for shown in metrics if any(pool.targets_on(shown.metric) for pool in pools)]


def _binding_metric(metrics: Sequence[Shown], pool: PoolRow) -> str:
    """Return the metric of a pool that is nearest to its limit; empty if the pool has no targets."""
    binding_metric = {shown.metric: tightest_of(pool.targets_on(shown.metric)) for shown in metrics}
    shares = {
        metric: figure.value / figure.limit for metric, figure in binding_metric.items() if figure is not None
    }
    return max(shares, key=lambda metric: shares[metric], default="")


def _plan_columns(
    shown: Shown, pools: Sequence[PoolRow], binding_rank: int, *, alone: bool
) -> Iterator[Column]:
    mine = [pool for pool in pools if of_pool(pool, shown.metric, "plan")]
    limited = [figure for pool in mine for figure in pool.targets_on(shown.metric)]
    tightest = [tightest_of(pool.targets_on(shown.metric)) for pool in mine]
    statistics = {"mean" if figure is None else statistic_of(figure.measure) for figure in tightest}
    base = column(shown, alone=alone)
    if limited:
        heading = f"{with_statistic(shown.heading, statistics)}/target"
        of = partial(_tightest, shown, statistics)
        yield base._replace(name=heading, of=of, rank=binding_rank, in_csv=False)
    is_mean = statistics == {"mean"}
    rank = base.rank if not limited else CSV_ONLY if is_mean else OTHER_STATISTIC
    heading = base.name if statistics <= {"mean"} else f"mean {base.name}"
    mean = partial(_mean_beside_limit if shown.percentile_ranks else _mean, shown)
    yield base._replace(name=heading, of=mean, rank=rank, csv_name=base.name)
    if shown.target:
        target = partial(_target, shown)
        heading = f"{shown.heading} target"
        yield Column(heading, target, shown.unit, significant(6), rank=CSV_ONLY, none="none")
    if shown.percentile_ranks:
        percentiles = target_percentiles(shown, pools, "plan")
        for percentile in percentiles:
            beside = partial(_beside_limit, shown, percentile)
            rank = CSV_ONLY if len(percentiles) == 1 else OTHER_STATISTIC
            yield base._replace(name=f"{percentile} {shown.heading}", of=beside, rank=rank)


def tightest_of(figures: Iterable[TargetFigure]) -> TargetFigure | None:
    """Return the target whose value is nearest to its limit; None if there are no targets."""
    return max(figures, key=lambda figure: figure.value / figure.limit, default=None)


def with_statistic(heading: str, statistics: Collection[str]) -> str:
    """Return the heading of a metric's column, with the percentile if all values are of the same one."""
    only = next(iter(statistics)) if len(statistics) == 1 else "mean"
    return heading if only == "mean" else f"{only} {heading}"


def stated(statistic: str, statistics: Collection[str], text: str) -> str:
    """Return a value as text, with its percentile unless the column's heading already names it.

    Args:
        statistic: the value's statistic: `mean`, or a percentile such as `p95`.
        statistics: all statistics in the column.
        text: the value.
    """
    return text if statistic == "mean" or len(statistics) == 1 else f"{statistic} {text}"


def _tightest(shown: Shown, statistics: Collection[str], pool: PoolRow) -> Value:
    """Return the statistic of a metric that the pool's tightest target limits, with the limit.

    If no target limits the metric, return its mean.
    """
    mine = of_pool(pool, shown.metric, "plan")
    tightest = None if mine is None else tightest_of(pool.targets_on(shown.metric))
    if mine is None or tightest is None:
        has_own_column = bool(set(statistics) - {"mean"})
        return FormattedValue("", None) if has_own_column else _mean(shown, pool)
    share = target_share_of(shown.metric, tightest, mine)
    text = stated(statistic_of(tightest.measure), statistics, share.cell)
    return FormattedValue(text, tightest.value, share.state)


def _mean(shown: Shown, pool: PoolRow) -> Value:
    """Return the mean of a pool's metric; None if it is too small to show."""
    mine = of_pool(pool, shown.metric, "plan")
    if mine is None:
        return FormattedValue("", None) if shown.least else MISSING
    mean: float | str | None = getattr(pool, mine.field)
    is_little = mine.least and isinstance(mean, float) and mean <= mine.least
    return None if is_little else mean


def _mean_beside_limit(shown: Shown, pool: PoolRow) -> Value:
    return _beside_limit(shown, "mean", pool) or _mean(shown, pool)


def _target(shown: Shown, pool: PoolRow) -> Value:
    mine = of_pool(pool, shown.metric, "plan")
    return MISSING if mine is None else getattr(pool, mine.target_field)


def _beside_limit(shown: Shown, statistic: str, pool: PoolRow) -> FormattedValue | None:
    """Return one statistic of a pool's metric with its limit; None if the pool has no such target."""
    figure = figure_of(pool, shown.metric, statistic) if of_pool(pool, shown.metric, "plan") else None
    if figure is None:
        return None
    return FormattedValue(f"{shown.text(figure.value)} ({precise(figure.limit)})", figure.value)


def figure_of(pool: PoolRow, metric: str, statistic: str) -> TargetFigure | None:
    """Return the target on a statistic of a pool's metric, with its value; None without such a target."""
    measured = pool.measured(metric)
    return next((figure for figure in measured if statistic_of(figure.measure) == statistic), None)


def of_pool(pool: Document, metric: str, table: TableName) -> Shown | None:
    """Return the display settings of a metric in a table of pools.

    None if the pool's kind lacks the metric.
    """
    return kind_of_pool(pool).shown(table).get(metric)


def target_percentiles(shown: Shown, pools: Iterable[PoolRow], table: TableName) -> list[str]:
    """Return the percentiles of a metric that the targets of pools limit (``p95``), in ascending order."""
    mine = (pool for pool in pools if of_pool(pool, shown.metric, table))
    statistics = {statistic_of(figure.measure) for pool in mine for figure in pool.measured(shown.metric)}
    return sorted(statistics - {"mean"}, key=lambda statistic: float(statistic.removeprefix("p")))


def measured_in_columns(pool: PoolRow, shown: Shown) -> tuple[TargetFigure, ...]:
    """Return the targets on a metric that columns show: all, or only the one that replaces the mean."""
    measured = pool.measured(shown.metric)
    return measured if shown.percentile_ranks else measured[:1]


def other_targets(pool: PoolRow, table: TableName) -> list[TargetFigure]:
    """Return the targets of a pool that no column of a table shows."""
    metrics = kind_of_pool(pool).shown(table).values()
    shown = [figure for metric in metrics for figure in measured_in_columns(pool, metric)]
    return [figure for figure in pool.other_targets if figure not in shown]
