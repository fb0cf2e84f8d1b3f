"""The section of a report on a simulation: every latency as predicted and as simulated, and every target."""

from collections.abc import Iterator

from optimizer.kinds.shown import Shown
from optimizer.kinds.table import kind_of_pool
from optimizer.render.estimates import marked
from optimizer.render.section import Column, Section
from optimizer.render.simulation_words import (
    VERDICTS,
    number,
    simulation_effort,
    simulation_headline,
    with_width,
)
from optimizer.studies.simulation.document import (
    Interval,
    SimulatedFigure,
    SimulatedLatency,
    SimulatedPool,
    Simulation,
    TargetCheck,
)

NONE = "–"


def simulation_section(found: Simulation) -> Section:
    """Return a row for each latency of each pool, and what becomes of the targets in words."""
    columns = (
        Column("server", numeric=False), Column("accelerator", numeric=False),
        Column("latency [ms]", numeric=False), Column("mean predicted"), Column("simulated"),
        Column("p95 predicted"), Column("simulated"), Column("p99 predicted"), Column("simulated"),
        Column("within target"), Column("pool", numeric=False),
    )  # fmt: skip
    effort = (
        f"One replica of each pool is run request by request at its share of the load: "
        f"{simulation_effort(found)}. Intervals (±) hold 95 %."
    )
    text = [
        f"{simulation_headline(found)}.",
        effort,
        *(said for pool in found.pools for said in _doubts(pool)),
    ]
    rows = [row for pool in found.pools for row in _rows(pool)]
    return Section("simulation", "Predicted and simulated", tuple(text), columns, tuple(rows))


def _rows(pool: SimulatedPool) -> Iterator[tuple[str, ...]]:
    place, verdict = (pool.server, marked(pool.accelerator, pool.estimated)), VERDICTS[pool.verdict]
    if pool.overload is not None:
        yield (*place, "no steady state", *([NONE] * 7), verdict)
    for shown in kind_of_pool(pool).shown("simulated").values():
        found = pool.figure(shown.metric)
        if found is not None:
            share: Interval | None = getattr(pool, f"within_{shown.metric}", None)
            within = NONE if share is None else f"{share.value:.1%}"
            yield (*place, shown.heading, *_figures(found, shown), within, verdict)


def _figures(found: SimulatedLatency | SimulatedFigure, shown: Shown) -> tuple[str, ...]:
    """Return mean, p95 and p99, each as predicted and as simulated."""
    if isinstance(found, SimulatedFigure):
        pairs = [(found.predicted, found.simulated)]
    else:
        known = found.predicted_percentiles
        p95, p99 = (None, None) if known is None else (known.p95_ms, known.p99_ms)
        pairs = [(found.predicted_mean, found.mean), (p95, found.p95), (p99, found.p99)]
    cells = [
        cell
        for plan, run in pairs
        for cell in (NONE if plan is None else shown.text(plan), with_width(run, shown.text))
    ]
    return (*cells, *[NONE] * (6 - len(cells)))


def _doubts(pool: SimulatedPool) -> Iterator[str]:
    """Say of a pool why it has no steady state, or which targets it does not surely keep."""
    place = f"{pool.server} on {pool.accelerator}"
    if pool.overload is not None:
        yield f"{place}: {pool.overload}."
    else:
        yield from (f"{place}: {_doubt(check)}." for check in pool.targets if check.verdict != "held")


def _doubt(check: TargetCheck) -> str:
    limit = number(check.limit)
    return f"{check.target} {with_width(check.simulated)}, target {limit}: {VERDICTS[check.verdict]}"
