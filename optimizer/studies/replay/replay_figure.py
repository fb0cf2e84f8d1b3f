"""Picture of a replay: desired and ready replicas, and their cost."""

from collections.abc import Callable

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, Series
from optimizer.studies.replay.replay_document import Replay, ReplayPolicy, ReplayStep
from optimizer.units import SECONDS_PER_MINUTE

MAX_POINTS = 1_500
"""Maximum number of times shown in a curve; longer curves are thinned evenly."""


def replay_figure(found: Replay) -> Figure:
    """Return the fleet over time, with one curve per policy."""
    ways = [item for item in found.variants if item.rules is not None]
    constant = [item for item in found.variants if item.rules is None]
    unit = cost_unit(found.currency)
    note = "; ".join(
        f"{item.name}: {item.changes_per_h:,.2f} changes/h, "
        f"{in_cost_unit(item.cost, found.currency):,.0f} {unit.removesuffix('/h')}, "
        f"{percent(item.missed / item.offered if item.offered else 0.0)} missed"
        for item in found.variants
    )
    panels = [
        _panel(ways, "Replicas desired", "replicas", lambda point: point.desired),
        _load_panel(ways),
        _panel(
            ways,
            "Cost of what is there",
            f"cost [{unit}]",
            lambda point: in_cost_unit(point.cost_per_h, found.currency),
            tuple(
                ReferenceLine(
                    name=item.name,
                    value=in_cost_unit(item.cost / found.hours, found.currency),
                    axis="y",
                )
                for item in constant
            ),
        ),
    ]
    return Figure(title=f"Replay of {counted(found.hours, 'hour')}", note=note, panels=tuple(panels))


def _times(item: ReplayPolicy) -> list[float]:
    first = item.points[0].time_s
    return [(point.time_s - first) / SECONDS_PER_MINUTE for point in item.points]


def _thinned(values: list[float]) -> tuple[float, ...]:
    step = -(-len(values) // MAX_POINTS)
    return tuple(values[::step])


def _series(name: str, item: ReplayPolicy, values: list[float]) -> Series:
    return Series(name=name, x=_thinned(_times(item)), y=_thinned(values), style="line")


def _panel(
    ways: list[ReplayPolicy],
    title: str,
    label: str,
    value: Callable[[ReplayStep], float],
    guides: tuple[ReferenceLine, ...] = (),
) -> CurvePanel:
    return CurvePanel(
        title=title,
        x_label="time [min]",
        y_label=label,
        series=tuple(_series(item.name, item, [value(point) for point in item.points]) for item in ways),
        guides=guides,
    )


def _load_panel(ways: list[ReplayPolicy]) -> CurvePanel:
    loads = [point.load_rpm for point in ways[0].points]
    takes = [_series(item.name, item, [float(point.capacity_rpm) for point in item.points]) for item in ways]
    return CurvePanel(
        title="Load and capacity of ready replicas",
        x_label="time [min]",
        y_label="requests/min",
        series=(_series("load", ways[0], loads), *takes),
    )
