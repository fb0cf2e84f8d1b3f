"""The sections of a report on latencies, one for each kind of replica: figures, their targets and margins."""

from collections.abc import Iterator, Sequence

from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.table import kind_of_pool, kinds_of
from optimizer.quantities import quantity
from optimizer.queueing.measures import LATENCIES, label_of
from optimizer.queueing.targets import target_share
from optimizer.render.estimates import marked
from optimizer.render.figures import of_pool, other_targets, percentiles_of
from optimizer.render.section import Column, Section
from optimizer.render.target_words import figures_text
from optimizer.studies.reports.overview import Overview, PoolRow

NONE = "–"
NOTHING_RUNS = "No server runs."


def latency_sections(overview: Overview) -> Iterator[Section]:
    """Yield the latencies of the pools of each kind; the first section has the picture."""
    for i, kind in enumerate(kinds_of(overview.pools)):
        pools = [pool for pool in overview.pools if kind_of_pool(pool) is kind]
        yield _section(kind, pools, "" if i else "targets")


def _section(kind: Kind, pools: Sequence[PoolRow], picture: str) -> Section:
    whole = [shown for shown in kind.shown("latencies").values() if not shown.part_of]
    entries = [entry for shown in whole for entry in _entries(shown, pools)]
    columns = (
        Column("server", numeric=False),
        Column("accelerator", numeric=False),
        *(column for shown, percentile in entries for column in _columns(kind, shown, percentile)),
    )
    rows = [
        (
            pool.server,
            marked(pool.accelerator, pool.estimated),
            *(cell for shown, percentile in entries for cell in _cells(kind, shown, percentile, pool)),
        )
        for pool in pools
    ]
    text = tuple(_text(kind, pools)) if pools else (NOTHING_RUNS,)
    return Section(*kind.words.section, text, columns, tuple(rows), picture)


def _entries(shown: Shown, pools: Sequence[PoolRow]) -> list[tuple[Shown, float | None]]:
    """Return a figure once, or for its mean and for each percentile that has columns of its own."""
    percentiles = percentiles_of(shown, pools, "latencies") if shown.percentile_ranks else []
    return [(shown, percentile) for percentile in (None, *percentiles)]


def _columns(kind: Kind, shown: Shown, percentile: float | None) -> Iterator[Column]:
    """Yield a figure, what is part of it, its target and what is left of that."""
    statistic = "mean" if percentile is None else f"p{percentile:g}"
    title = f"{statistic} {shown.title}" if shown.percentile_ranks else shown.title
    yield Column(shown.with_unit(title), numeric=not shown.is_text)
    yield from (Column(part.with_unit(part.title)) for part in _parts(kind, shown))
    if shown.metric in LATENCIES:
        yield from (Column(shown.with_unit("target")), Column("margin"))


def _cells(kind: Kind, shown: Shown, percentile: float | None, pool: PoolRow) -> Iterator[str]:
    """Yield what stands in these columns; a percentile in place of the mean where the target is about one."""
    found = pool.target_on(shown.metric) if shown.metric in LATENCIES else None
    if shown.percentile_ranks:
        label = label_of(shown.metric) if percentile is None else f"p{percentile:g} {label_of(shown.metric)}"
        found = next((figure for figure in pool.targets if figure.measure == label), None)
    if found is None:
        yield NONE if percentile is not None else value_text(pool, shown.metric, "latencies")
    else:
        prefix = found.measure.removesuffix(label_of(shown.metric))
        yield ("" if shown.percentile_ranks else prefix) + shown.text(found.value)
    yield from (value_text(pool, part.metric, "latencies") for part in _parts(kind, shown))
    if shown.metric in LATENCIES:
        share = None if found is None else target_share(found.value, found.limit)
        yield "none" if found is None else quantity(found.limit, 5)
        yield NONE if share is None else f"{1 - share:.0%}"


def _parts(kind: Kind, shown: Shown) -> list[Shown]:
    return [part for part in kind.shown("latencies").values() if part.part_of == shown.metric]


def value_text(pool: PoolRow, metric: str, table: TableName) -> str:
    """Return a figure of a pool as text."""
    shown = of_pool(pool, metric, table)
    value = None if shown is None else getattr(pool, shown.field)
    return NONE if shown is None or value is None else shown.text(value)


def _text(kind: Kind, pools: Sequence[PoolRow]) -> Iterator[str]:
    """Say what the figures are, and what each pool does against targets that have no column."""
    beside = ""
    if any(shown.percentile_ranks for shown in kind.metrics):
        beside = ", and the percentiles that targets name,"
    elif any(pool.targets for pool in pools):
        beside = ", or the percentile that a target is about, with its name,"
    yield f"Means{beside} {kind.words.about}. Margin: how much of the target is left."
    for pool in pools:
        others = figures_text(other_targets(pool, "latencies"))
        if others:
            yield f"{pool.server} on {pool.accelerator}: {others}."
