"""The section of a report on the latencies of batch servers, which have no times of tokens."""

from collections.abc import Sequence

from optimizer.quantities import percent, quantity
from optimizer.queueing.measures import Measure
from optimizer.queueing.targets import target_share
from optimizer.render.batch_columns import is_of_latency, percentiles_of
from optimizer.render.estimates import marked
from optimizer.render.section import Column, Section
from optimizer.render.target_words import figures_text
from optimizer.studies.reports.overview import PoolRow

NOTHING = "–"
TEXT = (
    "Means, and the percentiles that targets name, of the time from the arrival of a request to its answer, "
    "at the load that each pool carries; the wait before the batch is part of it. "
    "Margin: how much of the target is left."
)


def batch_section(pools: Sequence[PoolRow], picture: str) -> Section:
    """Return a row for each pool of batch servers, at least one.

    Args:
        pools: the pools.
        picture: the picture that belongs to it, if any.
    """
    measures = [Measure("e2e"), *(Measure("e2e", percent) for percent in percentiles_of(pools))]
    columns = [
        *(Column(name, numeric=False) for name in ("server", "accelerator", "trigger")),
        *map(Column, ("window [ms]", "mean batch", "wait [ms]")),
    ]
    for measure in measures:
        columns += [Column(f"{measure.statistic} latency [ms]"), Column("target [ms]"), Column("margin")]
    columns.append(Column("rejected"))
    rows = [_row(pool, measures) for pool in pools]
    others = (
        f"{pool.server} on {pool.accelerator}: {figures_text(rest)}."
        for pool in pools
        if (rest := [figure for figure in pool.targets if not is_of_latency(figure)])
    )
    text = (TEXT, *others)
    return Section("batches", "Latencies of batch servers", text, tuple(columns), tuple(rows), picture)


def _row(pool: PoolRow, measures: Sequence[Measure]) -> tuple[str, ...]:
    return (
        pool.server,
        marked(pool.accelerator, pool.estimated),
        pool.batch_trigger or NOTHING,
        NOTHING if pool.batch_window_ms is None else quantity(pool.batch_window_ms),
        NOTHING if pool.mean_batch is None else f"{pool.mean_batch:,.1f}",
        f"{pool.wait_ms:,.0f}",
        *(cell for measure in measures for cell in _figure(pool, measure)),
        rejected_text(pool.loss),
    )


def _figure(pool: PoolRow, measure: Measure) -> tuple[str, str, str]:
    """Return a figure of the latency, its target and what is left of it."""
    found = next((figure for figure in pool.targets if figure.measure == measure.label), None)
    if found is None:
        value = f"{pool.ttft_ms:,.0f}" if measure.percentile is None else NOTHING
        return value, "none", NOTHING
    share = target_share(found.value, found.limit)
    margin = NOTHING if share is None else f"{1 - share:.0%}"
    return f"{found.value:,.0f}", quantity(found.limit, 5), margin


def rejected_text(share: float) -> str:
    """Return a share of requests in percent; small ones in full."""
    return "0" if share < 1e-6 else percent(share)
