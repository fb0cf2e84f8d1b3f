"""What tables show of batch servers: a request's latency, in place of the times of tokens that it has not.

Takes pools, gives columns and their values by heading. Fleets of both kinds have the columns of both.
"""

from collections.abc import Iterable, Sequence

from optimizer.plan import TargetFigure
from optimizer.queueing.measures import METRICS
from optimizer.render import columns
from optimizer.render.columns import NOTHING, Column, words
from optimizer.render.tables import Said
from optimizer.studies.reports.overview import PoolRow

LATENCY = Column("latency", "ms", ",.0f", rank=2)
"""The mean time to the answer."""
COLLECTING = (
    Column("window", "ms", ",g", rank=3),
    words("trigger", rank=6)._replace(kind="name"),
    Column("mean batch", form=",.1f", rank=7),
    Column("busy", form=".0%", rank=8),
)
TOKENS = ("ITL", "ITL target", "TTFT", "TTFT target")
"""Headings of what only answers with tokens have."""
_E2E = METRICS["e2e"].label


def allocation_columns(pools: Sequence[PoolRow], *, has_tokens: bool) -> tuple[Column, ...]:
    """Return the columns of a plan's allocations.

    Args:
        pools: the pools of the plan.
        has_tokens: whether some server's answers have tokens.
    """
    together = [pool for pool in pools if pool.answers_together]
    if has_tokens and not together:
        return columns.ALLOCATIONS
    found: list[Column] = []
    for column in columns.ALLOCATIONS:
        if column.name == "targets":
            mean, percentiles = (1, 2) if has_tokens else (2, 1)  # beside TTFT the mean, which both have
            found.append(LATENCY._replace(rank=mean))
            found += [column._replace(rank=percentiles) for column in percentile_columns(together)]
            found += COLLECTING
        if has_tokens or column.name not in TOKENS:
            rejects = column.name == "lost" and not has_tokens
            found.append(column._replace(name="rejected") if rejects else column)
    return tuple(found)


def candidate_columns(*, has_tokens: bool, together: bool) -> tuple[Column, ...]:
    """Return the columns of candidates: of answers with tokens, of batch servers, or of both."""
    found: list[Column] = []
    for column in columns.CANDIDATES:
        if has_tokens or not together or column.name not in TOKENS:
            found.append(column)
        if column.name == "TTFT" and together:
            found.append(LATENCY)
    return tuple(found)


def percentile_columns(pools: Iterable[PoolRow]) -> tuple[Column, ...]:
    """Return a column for each percentile of the latency that a target names, in their order."""
    return tuple(Column(f"p{percent:g} latency", "ms", ",.0f", rank=1) for percent in percentiles_of(pools))


def percentiles_of(pools: Iterable[PoolRow]) -> list[float]:
    """Return the percentiles of the latency that targets name, in their order."""
    figures = (figure for pool in pools for figure in pool.targets if _is_percentile(figure))
    return sorted({float(figure.measure.split()[0].removeprefix("p")) for figure in figures})


def allocation_values(pool: PoolRow) -> dict[str, Said | float | str | None]:
    """Return what is shown of the latency of a batch server, by heading; figures with their limits."""
    shown: dict[str, Said | float | str | None] = dict.fromkeys(TOKENS, Said(NOTHING, None))
    shown["latency"] = pool.ttft_ms
    for figure in pool.targets:
        if is_of_latency(figure):
            percentile = figure.measure.removesuffix(_E2E)
            text = f"{figure.value:,.0f} ({figure.limit:,g})"
            shown[f"{percentile}latency"] = Said(text, figure.value)
    collected = pool.batch_window_ms, pool.batch_trigger, pool.mean_batch, pool.busy
    return shown | dict(zip((column.name for column in COLLECTING), collected, strict=True))


def is_of_latency(figure: TargetFigure) -> bool:
    """Say whether a target is about the time to the answer: its mean or a percentile."""
    return figure.measure == _E2E or _is_percentile(figure)


def _is_percentile(figure: TargetFigure) -> bool:
    return figure.measure.endswith(f" {_E2E}")
