"""Figure of a sweep: curves over one parameter, a map over two, or the cost of safety over sampled days."""

from collections.abc import Callable, Iterator
from math import inf, log

from optimizer.limits.cards import CARDS
from optimizer.limits.table import limit_label
from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import precise, share_text
from optimizer.schema.classes import priority_name
from optimizer.studies.figures.figure_document import Cell, CurvePanel, Figure, GridPanel, XAxis
from optimizer.studies.sweep.sweep_document import Axis, SampledDays, Sweep, SweepPoint

MAX_COLUMNS, MAX_ROWS = 9, 21
"""Maximum numbers of columns and rows of a map; larger maps are thinned evenly."""
LARGE_RATIO = 3.0
"""Ratio of two costs, or its inverse, from which a cell has the full colour."""
LARGE_COST = 10_000
"""Cost from which a map shows no decimals."""


def sweep_figure(sweep: Sweep) -> Figure:
    """Return the figure of a sweep over one or two parameters, and of its sampled days."""
    panels: list[CurvePanel | GridPanel] = []
    note = ""
    if len(sweep.axes) == 1:
        panels += _curves(sweep)
    elif len(sweep.axes) == 2:
        panels += [_map(sweep), *_role_maps(sweep)]
        note = (
            "first line of a cell: cost; second line, below 100 %: smallest served share of a priority; "
            "colour: the accelerator type that keeps most servers from service, or from a cheaper candidate"
        )
        if len(panels) > 1:
            note += "; pools: blue where prefill and decode pools cost less than replicas that do both"
    elif sweep.axes:
        note = "A picture shows one or two parameters; the table and the JSON have all."
    if sweep.days is not None:
        panels.append(_days_panel(sweep, sweep.days))
    names = ", ".join(axis.parameter for axis in sweep.axes) or "days"
    types = sweep.points[0].units if sweep.points else ()
    return Figure(
        title=f"Plans over {names}",
        note=note,
        panels=tuple(panels),
        types=tuple(item.type for item in types),
    )


def axis_label(axis: Axis, currency: str | None) -> str:
    """Return the name of a parameter with its unit; costs are in the given currency."""
    factor = "load [× today's]" if axis.parameter == "load" else axis.parameter
    return f"{axis.parameter} [{axis.unit_in(currency)}]" if axis.unit else factor


def _curves(sweep: Sweep) -> list[CurvePanel]:
    ends = [
        (point, end)
        for point in sweep.points
        for end in dict.fromkeys([point.values[0], point.until or point.values[0]])
    ]
    parameter, unit = sweep.axes[0], cost_unit(sweep.currency)
    values = [parameter.value_in(end, sweep.currency) for _, end in ends]
    axis = XAxis(axis_label(parameter, sweep.currency), values)

    points = [point for point, _ in ends]
    served = {
        priority_name(item.priority): [_percent(point.served[place].share) for point in points]
        for place, item in enumerate(points[0].served)
    }
    binding = sorted({(bind.limit, bind.item) for point in points for bind in point.binds if bind.item})
    cost = {"cost": [in_cost_unit(point.total_cost_cents_per_h, sweep.currency) for point in points]}
    panels = [
        axis.panel("Cost of the plan", f"cost [{unit}]", cost),
        axis.panel("Served share of the load", "served [%]", served),
    ]
    if sweep.requires_reserve:
        lacking = {"lack their reserve": [len(point.lacks_reserve) for point in points]}
        panels.append(axis.panel("Servers that lack their reserve", "servers", lacking))
    if binding:
        # Other limits have no colour, and are distinguished by dashes.
        limits = []
        for limit, item in binding:
            held = [_held(point, limit, item) for point in points]
            type_name = item if limit == CARDS else ""
            limits.append(axis.curve(limit_label(limit, item), held, type_name=type_name))
        title = "Servers that more cards would serve, or serve at less cost"
        panels.append(axis.panel(title, "servers", limits))
    return panels


def _held(point: SweepPoint, limit: str, item: str) -> int:
    """Return the number of servers that a limit keeps from service or from a cheaper candidate."""
    mine = [bind for bind in point.binds if (bind.limit, bind.item) == (limit, item)]
    return sum(bind.unserved + bind.dearer for bind in mine)


def _map(sweep: Sweep) -> GridPanel:
    """Return the map of the plans' costs over two parameters."""
    type_names = tuple(item.type for item in sweep.points[0].units)
    costs = [in_cost_unit(point.total_cost_cents_per_h, sweep.currency) for point in sweep.points]
    decimals = 2 if max(costs) < LARGE_COST and any(cost % 1 for cost in costs) else 0
    across, down = (axis_label(axis, sweep.currency) for axis in sweep.axes)
    title = f"Cost [{cost_unit(sweep.currency)}]; {across} across, {down} down"
    return _grid(sweep, title, lambda point: _cell(point, sweep.currency, decimals), type_names)


def _grid(
    sweep: Sweep, title: str, cell_of: Callable[[SweepPoint], Cell], groups: tuple[str, ...] = ()
) -> GridPanel:
    """Return a map over two parameters: the first in columns, the second in rows."""
    columns, rows = (
        _thinned(axis.values, most) for axis, most in zip(sweep.axes, (MAX_COLUMNS, MAX_ROWS), strict=True)
    )
    by_values = {point.values: point for point in sweep.points}
    return GridPanel(
        title=title,
        columns=tuple(precise(sweep.axes[0].value_in(x, sweep.currency)) for x in columns),
        rows=tuple(precise(sweep.axes[1].value_in(y, sweep.currency)) for y in rows),
        cells=tuple(tuple(cell_of(by_values[x, y]) for x in columns) for y in rows),
        groups=groups,
    )


def _role_maps(sweep: Sweep) -> Iterator[GridPanel]:
    """Yield a map of the costs of pools divided by those of replicas that do both, for each server."""
    for place, server in sweep.servers_with_roles:
        title = f"{server}: cost of prefill and decode pools / of replicas that do both"
        yield _grid(sweep, title, lambda point, place=place: _ratio_cell(point, place))  # type: ignore[misc]


def _ratio_cell(point: SweepPoint, place: int) -> Cell:
    ratio = point.disaggregation[place].ratio
    if ratio is None:
        return Cell(text="")
    if ratio in {0.0, inf}:
        return Cell(text="no pools" if ratio else "only pools", level=1.0 if ratio else -1.0)
    return Cell(text=f"{ratio:.2f}", level=max(-1.0, min(log(ratio) / log(LARGE_RATIO), 1.0)))


def _cell(point: SweepPoint, currency: str | None, decimals: int) -> Cell:
    shares = [item.share for item in point.served if item.share is not None]
    least = min(shares, default=1.0)
    binds = [item for item in point.binds if item.limit == CARDS]
    worst = max(binds, key=lambda item: (item.unserved, item.dearer, item.item), default=None)
    cost = f"{in_cost_unit(point.total_cost_cents_per_h, currency):,.{decimals}f}"
    return Cell(
        text=cost if least == 1 else f"{cost}\n{share_text(least)}",
        group="" if worst is None else worst.item,
        share=least,
    )


def _thinned(values: tuple[float, ...], most: int) -> tuple[float, ...]:
    return values[:: -(-len(values) // most)]


def _days_panel(sweep: Sweep, days: SampledDays) -> CurvePanel:
    costs: dict[str, list[float | None]] = {
        "one fleet": [item.total_cost_cents_per_h for item in days.fleets],
        "replanned every day": [item.replanned_cents_per_h for item in days.fleets],
    }
    shown = {
        name: [None if cost is None else in_cost_unit(cost, sweep.currency) for cost in mine]
        for name, mine in costs.items()
        if name != "one fleet" or any(cost is not None for cost in mine)
    }
    axis = XAxis("days [%]", [round(100 * item.days_share, 6) for item in days.fleets])
    title, unit = "Cost of one fleet that is safe on a share of days", cost_unit(sweep.currency)
    curves = [axis.curve(name, cost, "steps") for name, cost in shown.items()]
    return axis.panel(title, f"cost [{unit}]", curves, ticks=tuple(axis.x))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
