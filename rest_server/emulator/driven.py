"""Results of a run of the load client: sections for readers, and a figure over time."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optimizer.kinds.table import kind_of_pool
from optimizer.quantities import counted, quantity, significant
from optimizer.render.simulation_sections import simulation_sections
from optimizer.section import Column, Section, name, table
from optimizer.simulation.engine import SimulatedRun
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, Series
from optimizer.studies.simulation.pools import PoolRun
from optimizer.studies.simulation.simulation_document import Simulation
from rest_server.emulator.driver import MeasuredLoad
from rest_server.emulator.measured import Answers

if TYPE_CHECKING:
    from optimizer.arrays import FloatArray

LATE = 95
"""Percentile of the delay with which requests were sent."""
MAX_POINTS = 2000
"""Maximum number of requests that a panel of the figure shows."""


def sections_of(simulation: Simulation, answers: Sequence[Answers], client_cost: str) -> list[Section]:
    """Return the measured metrics of pools beside those of the plan, and the servers that answered."""
    columns = (
        name("server", "server"),
        Column("requests", "requests", form=",d"),
        Column("share", "share", form=".1%"),
        Column("share plan", "planned_share", form=".1%"),
        Column("cache hits", "hits", form=".1%", none=""),
        Column("cache hits plan", "planned_hits", form=".1%", none=""),
    )
    return [*simulation_sections(simulation, client_cost, "measured"), table("Answers", columns, answers)]


def cost_of_client(measured_loads: Sequence[MeasuredLoad], client_cpu_s: float) -> str:
    """Return a sentence on the requests, and on how much the load client itself adds to their latencies."""
    sent = sum(len(one.sent_ms) for one in measured_loads)
    tokens = sum(float(np.nansum(one.tokens)) for one in measured_loads if one.load.streams)
    late_ms = float(np.percentile(np.concatenate([one.late_ms for one in measured_loads]), LATE))
    span_s = max(float(np.nanmax(one.sent_ms)) for one in measured_loads) / 1000
    each = f", {1e6 * client_cpu_s / tokens:,.0f} us per token" if tokens else ""
    return (
        f"{counted(sent, 'request')} in {quantity(span_s, 3)} s; the client itself used "
        f"{1e6 * client_cpu_s / sent:,.0f} us of CPU per request{each}, and {LATE} % of the "
        f"requests were sent at most {quantity(late_ms, 2)} ms late"
    )


def figure_of(measured: Sequence[tuple[PoolRun, SimulatedRun]], client_cost: str) -> Figure:
    """Return the figure of the latencies of all requests over time, with the means of the plan."""
    panels = tuple(panel for run, done in measured for panel in _panels(run, done))
    return Figure(title="Measured latencies", note=f"{client_cost}.", panels=panels)


def _panels(run: PoolRun, done: SimulatedRun) -> Iterator[CurvePanel]:
    for shown in kind_of_pool(run.pool).shown("simulation").values():
        if shown.simulated or shown.metric not in run.means:
            continue
        values: FloatArray = getattr(done, f"{shown.metric}_ms")
        kept = np.flatnonzero(~np.isnan(values))
        some = kept[:: max(1, -(-len(kept) // MAX_POINTS))]
        lines = {"planned mean": run.means[shown.metric], "measured mean": float(np.nanmean(values))}
        yield CurvePanel(
            title=f"{shown.heading} of {run.server} on {run.pool.accelerator}",
            x_label="sent after [s]",
            y_label=f"{shown.heading} [ms]",
            series=(
                Series(
                    name="request",
                    x=tuple((done.sent_ms[some] / 1000).tolist()),
                    y=tuple(values[some].tolist()),
                    style="points",
                ),
            ),
            guides=tuple(
                ReferenceLine(name=f"{label} {significant(4)(at)} ms", value=at, axis="y")
                for label, at in lines.items()
                if np.isfinite(at)
            ),
        )
