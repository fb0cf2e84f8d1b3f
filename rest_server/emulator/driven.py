"""Results of a run of the load client: sections for readers, and a figure over time."""

from collections.abc import Sequence

import numpy as np

from optimizer.quantities import counted, quantity, significant
from optimizer.section import Column, Paragraph, Section, name, table
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, Series
from rest_server.emulator.driver import MeasuredLoad
from rest_server.emulator.measured import METRICS, PERCENTILE, DrivenMetric

DRAWN = ("ttft", "itl", "latency")
"""Latency metrics that the figure shows."""
MAX_POINTS = 2000
"""Maximum number of requests that a panel of the figure shows."""


def sections_of(
    rows: Sequence[DrivenMetric], measured_loads: Sequence[MeasuredLoad], client_cpu_s: float
) -> list[Section]:
    """Return the comparison of measured, simulated and planned metrics, and the load client's own CPU time.

    Args:
        rows: the compared metrics.
        measured_loads: measurements of each name.
        client_cpu_s: CPU time of the load client [s].
    """
    digits = significant(4)
    columns = (
        name("server", "server"),
        name("metric", "metric"),
        name("unit", "unit"),
        Column("measured", "measured", form=digits),
        Column("±", "half_width", form=significant(2)),
        Column("simulated", "simulated", form=digits),
        Column("plan", "predicted", form=digits),
        Column("p95 measured", "measured_p95", form=digits, rank=1),
        Column("p95 simulated", "simulated_p95", form=digits, rank=2),
    )
    return [
        Section(text=[Paragraph(client_cost(measured_loads, client_cpu_s))]),
        table("Latencies", columns, rows),
    ]


def client_cost(measured_loads: Sequence[MeasuredLoad], client_cpu_s: float) -> str:
    """Return a sentence on the requests, and on how much the load client itself adds to their latencies."""
    sent = sum(len(one.sent_ms) for one in measured_loads)
    tokens = sum(float(np.nansum(one.tokens)) for one in measured_loads if one.load.streams)
    late_ms = float(np.percentile(np.concatenate([one.late_ms for one in measured_loads]), PERCENTILE))
    span_s = max(float(np.nanmax(one.sent_ms)) for one in measured_loads) / 1000
    each = f", {1e6 * client_cpu_s / tokens:,.0f} us per token" if tokens else ""
    return (
        f"{counted(sent, 'request')} in {quantity(span_s, 3)} s; the client itself used "
        f"{1e6 * client_cpu_s / sent:,.0f} us of CPU per request{each}, and {PERCENTILE} % of the "
        f"requests were sent at most {quantity(late_ms, 2)} ms late"
    )


def figure_of(
    rows: Sequence[DrivenMetric], measured_loads: Sequence[MeasuredLoad], client_cpu_s: float
) -> Figure:
    """Return the figure of the latencies of all requests over time, with simulated means and percentiles."""
    known = {(row.server, row.metric): row for row in rows}
    panels = []
    for one in (each.at(server) for each in measured_loads for server in each.load.parts):
        for metric, values in one.latencies_ms.items():
            if metric not in DRAWN:
                continue
            row = known[one.load.server, METRICS[metric]]
            shown = np.flatnonzero(~np.isnan(values))
            shown = shown[:: max(1, -(-len(shown) // MAX_POINTS))]
            points = Series(
                name="request",
                x=tuple((one.sent_ms[shown] / 1000).tolist()),
                y=tuple(values[shown].tolist()),
                style="points",
            )
            lines = (
                ("planned mean", row.predicted),
                ("simulated mean", row.simulated),
                (f"simulated p{PERCENTILE}", row.simulated_p95),
            )
            panels.append(
                CurvePanel(
                    title=f"{METRICS[metric]} of {one.load.server}: measured mean {_ms(row.measured)}, "
                    f"p{PERCENTILE} {_ms(row.measured_p95)}",
                    x_label="sent after [s]",
                    y_label=f"{METRICS[metric]} [ms]",
                    series=(points,),
                    guides=tuple(
                        ReferenceLine(name=f"{label} {_ms(at)}", value=at, axis="y")
                        for label, at in lines
                        if at is not None
                    ),
                )
            )
    return Figure(
        title="Measured latencies", note=client_cost(measured_loads, client_cpu_s) + ".", panels=tuple(panels)
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{significant(4)(value)} ms"
