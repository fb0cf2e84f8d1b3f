"""Figure of a replay: desired and ready replicas, and their cost, over time."""

from collections.abc import Callable

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent
from optimizer.studies.figures.figure_document import Figure, Series, XAxis, level
from optimizer.studies.replay.replay_document import Replay, ReplayPolicy, ReplayStep
from optimizer.units import SECONDS_PER_MINUTE

MAX_POINTS = 1_500
"""Maximum number of times shown in a curve; longer curves are thinned evenly."""


def replay_figure(replay: Replay) -> Figure:
    """Return the figure of the fleet over time, with one curve per policy."""
    ways = [item for item in replay.variants if item.rules is not None]
    constant = [item for item in replay.variants if item.rules is None]
    unit = cost_unit(replay.currency)
    note = "; ".join(
        f"{item.name}: {item.changes_per_h:,.2f} changes/h, "
        f"{in_cost_unit(item.cost, replay.currency):,.0f} {unit.removesuffix('/h')}, "
        f"{percent(item.missed / item.offered if item.offered else 0.0)} missed"
        for item in replay.variants
    )
    axis = XAxis("time [min]", ())
    load = _curve("load", ways[0], lambda point: point.load_rpm)
    desired, capacity, cost = (
        [_curve(item.name, item, value) for item in ways]
        for value in (
            lambda point: point.desired,
            lambda point: point.capacity_rpm,
            lambda point: in_cost_unit(point.cost_per_h, replay.currency),
        )
    )
    means = [level(item.name, in_cost_unit(item.cost / replay.hours, replay.currency)) for item in constant]
    panels = (
        axis.panel("Replicas desired", "replicas", desired),
        axis.panel("Load and capacity of ready replicas", "requests/min", [load, *capacity]),
        axis.panel("Cost of what is there", f"cost [{unit}]", cost, means),
    )
    return Figure(title=f"Replay of {counted(replay.hours, 'hour')}", note=note, panels=panels)


def _curve(name: str, item: ReplayPolicy, value: Callable[[ReplayStep], float]) -> Series:
    """Return the curve of a value of a policy over time; long curves are thinned."""
    points = item.points[:: -(-len(item.points) // MAX_POINTS)]
    times = [(point.time_s - points[0].time_s) / SECONDS_PER_MINUTE for point in points]
    return XAxis("", times).curve(name, [value(point) for point in points])
