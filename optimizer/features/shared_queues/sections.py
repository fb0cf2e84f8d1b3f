"""The table of shared queues in reports: load, queueing times and latencies of their servers, and targets."""

from collections.abc import Iterable

from optimizer.quantities import precise, quantity
from optimizer.section import RPM, Column, FormattedValue, Section, name, table, words
from optimizer.studies.overview import QueueRow


def shared_queue_section(rows: Iterable[QueueRow]) -> Section:
    """Return the table of the servers of shared queues by descending priority."""
    return table("Shared queues", _columns(), rows, "queues", may_be_empty=True)


def _columns() -> list[Column]:
    def figure(heading: str, field: str, unit: str = "ms", form: str = ",.0f") -> Column:
        def value(row: QueueRow) -> float | None:
            result: float | None = getattr(row.member, field, None)
            return result

        return Column(heading, value, unit, form)

    def target(heading: str, field: str, form: str) -> Column:
        """Return a column for a mean latency, or for the percentile of a target and its limit."""

        def value(row: QueueRow) -> float | FormattedValue | None:
            mean: float | None = getattr(row.member, field, None)
            for each in row.targets:
                statistic, _, metric = each.measure.partition(" ")
                if metric == heading:
                    text = f"{statistic} {each.value:{form}} ({precise(each.limit)})"
                    return FormattedValue(text, mean)
            return mean

        return Column(heading, value, "ms", form)

    return [
        name("queue", "queue", rank=3),
        name("server", "server"),
        Column("prio", "priority", rank=2),
        Column("load", lambda row: row.member and row.member.arrival_rate_rpm, RPM, quantity),
        figure("wait", "wait_ms"),
        figure("p95 wait", "wait_p95_ms")._replace(rank=4),
        target("ITL", "itl_ms", ",.1f"),
        target("TTFT", "ttft_ms", ",.0f"),
        Column("TTFT target", "ttft_target_ms", "ms", ",.0f", rank=1, none=""),
        words("targets", _other_targets, rank=5, none=""),
    ]


def _other_targets(row: QueueRow) -> str:
    """Return the targets of a server that have no column, as text."""
    shown = ("ITL", "TTFT")
    return "; ".join(each.text for each in row.targets if each.measure.partition(" ")[2] not in shown)
