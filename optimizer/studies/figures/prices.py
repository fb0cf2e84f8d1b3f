"""Cost of a server by load, for each accelerator.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates import Candidates
from optimizer.candidates.table import CandidateTable
from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import quantity
from optimizer.schema.messages import known_name
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import (
    Figure,
    Series,
    SeriesStyle,
    XAxis,
    upright,
)
from optimizer.studies.figures.placed import (
    EmptyFigureError,
    candidates_of_only,
    has_targets,
    joined_candidates,
    rejection,
)
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

MAX_CURVES = 6
"""Maximum number of accelerators shown in one panel."""
LOAD_VIEW = 2.0
"""Multiple of the server's load up to which costs are shown."""
SIGHT = 3.0
"""Maximum of a cost axis, as a multiple of the end of the cheapest curve."""
POINTS = 400
"""Number of points of a curve that has too many steps to draw each one."""


def cost_figure(system: System, server: str, accelerator: str | None) -> Figure:
    """Return the figure of a server's cost by load, with one step curve per accelerator (eq. 28-30)."""
    candidates, table = _candidates_of(system, server, accelerator)
    load = float(candidates.arrays.servers.load_rps[0])
    at_load = in_cost_unit(_costs(candidates, table, np.array([load]))[:, 0], system.currency)
    rows = np.argsort(at_load, kind="stable")[:MAX_CURVES]
    drawn = [_steps(candidates, table.take(rows[i : i + 1]), load) for i in range(len(rows))]
    series, y_most, dear = _within_sight(drawn, at_load[rows])
    within = " within its targets" if has_targets(candidates.arrays) else ""
    title, y_label = f"Cost of the server{within}, by accelerator", f"cost [{cost_unit(system.currency)}]"
    guides = [upright("load", load * SECONDS_PER_MINUTE)]
    panel = XAxis("load [requests/min]", ()).panel(title, y_label, series, guides, y_most=y_most)
    some = f"the {len(rows)} cheapest of {len(table)} accelerators at" if len(rows) < len(table) else "at"
    note = f"{some} a load of {quantity(load * SECONDS_PER_MINUTE)} requests/min; replicas are indivisible"
    if dear:
        note += f"; far above the axis: {', '.join(dear)}"
    types = candidates.arrays.type_names
    return Figure(title=f"Cost against load: {server}", note=note, panels=(panel,), types=types)


def _within_sight(
    drawn: Sequence[Series], at_load: FloatArray
) -> tuple[tuple[Series, ...], float | None, list[str]]:
    """Return the curves close to the cheapest, the end of the cost axis, and the names of the omitted curves.

    A single expensive accelerator would otherwise flatten all relevant curves.
    """
    ends = [max((value for value in item.y if value is not None), default=0.0) for item in drawn]
    most = SIGHT * min(ends, default=0.0)
    if max(ends, default=0.0) <= most:
        return tuple(drawn), None, []
    near = tuple(item for item, cost in zip(drawn, at_load, strict=True) if not cost > most)
    return near, most, [item.name for item in drawn if item not in near]


def _candidates_of(system: System, server: str, accelerator: str | None) -> tuple[Candidates, CandidateTable]:
    """Return the candidates of a server on all accelerators or on one; there is at least one candidate."""
    candidates = candidates_of_only(system, server)
    table = joined_candidates(candidates)
    if accelerator is not None:
        place_of = candidates.arrays.accelerator_names.index(
            known_name(accelerator, system.accelerators, "accelerator")
        )
        table = table.take(table.accelerator == place_of)
    if not len(table):
        raise EmptyFigureError(_no_candidate(candidates, server, accelerator))
    return candidates, table


def _no_candidate(candidates: Candidates, server: str, accelerator: str | None) -> str:
    if accelerator is None:
        return f"{server} has no candidate: no accelerator meets its targets"
    return f"{server} cannot run on {accelerator}: {rejection(candidates, accelerator)}"


def _costs(candidates: Candidates, table: CandidateTable, load_rps: FloatArray) -> FloatArray:
    """Return each candidate's cost at each load [cents/h], shape (C, loads) (eq. 28).

    The cost is NaN at loads for which the candidate would need more replicas than its limit.
    """
    servers = candidates.arrays.servers
    needed = np.ceil(load_rps / table.max_rate_rps[:, None] * (1 - ROUNDING))
    count = np.maximum(needed, servers.min_replicas[0])
    allowed = count <= servers.max_replicas[0]
    return np.where(allowed, count * table.cost_per_replica[:, None], np.nan)


def _steps(candidates: Candidates, candidate: CandidateTable, load_rps: float) -> Series:
    """Return the curve of one candidate's cost up to a multiple of the load: every step, or many points."""
    rate, end = float(candidate.max_rate_rps[0]), LOAD_VIEW * load_rps
    every_step = end / rate <= POINTS
    load = np.append(np.arange(0, end, rate), end) if every_step else np.linspace(0, end, POINTS)
    cost = in_cost_unit(_costs(candidates, candidate, load)[0], candidates.system.currency)
    return _curve(candidates, int(candidate.accelerator[0]), load * SECONDS_PER_MINUTE, cost, "steps")


def _curve(candidates: Candidates, a: int, x: FloatArray, y: FloatArray, style: SeriesStyle) -> Series:
    """Return a curve of the accelerator at index `a`, in the colour of its type."""
    arrays = candidates.arrays
    return XAxis("", x, arrays.type_names[int(arrays.type[a])]).curve(arrays.accelerator_names[a], y, style)
