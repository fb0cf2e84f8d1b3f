"""Sections on the performance of servers at their current allocations."""

from optimizer.quantities import counted, precise, quantity, significant
from optimizer.queueing.measures import metric_of
from optimizer.section import RPM, Column, FormattedValue, Paragraph, Section, name, table, words
from optimizer.studies.current import CurrentPoolFigures, CurrentService


def current_sections(current: CurrentService) -> list[Section]:
    """Return whether what runs holds the targets, and the figures of every pool."""
    missed = counted(sum(not pool.holds for pool in current.pools), "pool")
    text = (
        "Every pool holds its targets"
        if current.holds
        else f"{missed} of {len(current.pools):,} without its targets"
    )
    columns = (
        name("server", "server"),
        name("accelerator", "accelerator"),
        Column("replicas", "num_replicas", form=",d", rank=2),
        Column("load", "rate_rpm", RPM, quantity, none=""),
        Column("largest", "max_rate_rpm", RPM, quantity, rank=1, none=""),
        Column("ITL", "itl_ms", "ms", significant(3), rank=3, none=""),
        Column("TTFT or latency", "ttft_ms", "ms", significant(3), rank=4, none=""),
        Column("tightest target", _tightest, none=""),
        words("verdict", lambda pool: "held" if pool.holds else pool.problem or "missed"),
    )
    style = "green" if current.holds else "red"
    return [Section(text=[Paragraph(f"{text}.", style)]), table("Pools", columns, current.pools, "pools")]


def _tightest(pool: CurrentPoolFigures) -> FormattedValue | None:
    """Return the target that is nearest to its limit, with value, limit and share."""
    figure = max(pool.targets, key=lambda one: one.value / one.limit, default=None)
    if figure is None:
        return None
    metric = metric_of(figure.measure)
    scale = 1.0 if metric is None else metric.scale
    value, limit = quantity(figure.value * scale, 3), precise(figure.limit * scale)
    return FormattedValue(f"{figure.measure} {value}/{limit} {figure.value / figure.limit:.0%}", figure.value)
