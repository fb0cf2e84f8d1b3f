"""Figure of a horizon study: load, reserved and rented cards, and cost over the hours."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, XAxis, level
from optimizer.studies.horizon.horizon_document import Horizon, HourPlan
from optimizer.units import SECONDS_PER_HOUR


def horizon_figure(found: Horizon) -> Figure:
    """Return the figure of reserved and rented accelerators and the load over the hours."""
    unit, reserved = cost_unit(found.currency), sum(item.reserved * item.cards for item in found.reservations)
    gap = "" if found.gap is None else f"; with transitions at most {percent(found.gap)} above the optimum"
    note = f"{counted(reserved, 'card')} reserved{gap}"
    means = [
        level(item.name, in_cost_unit(item.total_cost / found.hours, found.currency))
        for item in found.policies[1:]
    ]
    load, served = attrgetter("load_rpm"), attrgetter("served_rpm")
    all_served = all(served(hour) == load(hour) for hour in found.plans)
    panels = (
        _panel(found, "Load", "requests/min", {"load": load} | ({} if all_served else {"served": served})),
        _panel(
            found,
            "Cards in use",
            "cards",
            {"in use": lambda hour: _cards(hour, "rented") + _cards(hour, "reserved"),
             "rented": lambda hour: _cards(hour, "rented"),
             **({"reserved": lambda _: float(reserved)} if reserved else {})},
            areas=("rented",),
        ),
        _panel(
            found,
            "Cost without transitions; lines: means of the other policies",
            f"cost [{unit}]",
            {"reserve and rent": lambda hour: in_cost_unit(hour.cost_cents_per_h, found.currency)},
            means,
        ),
    )  # fmt: skip
    return Figure(title=f"Plan of {counted(found.hours, 'hour')}", note=note, panels=panels)


def _cards(hour: HourPlan, which: str) -> float:
    return float(sum(getattr(item, which) * item.cards for item in hour.use))


def _panel(
    found: Horizon,
    title: str,
    label: str,
    values: Mapping[str, Callable[[HourPlan], float]],
    guides: Sequence[ReferenceLine] = (),
    areas: tuple[str, ...] = (),
) -> CurvePanel:
    """Return a panel of values that are constant within each interval.

    Args:
        found: the horizon.
        title: title of the panel.
        label: name and unit of the y axis.
        values: functions that return the value of an interval, by name of the curve.
        guides: reference lines.
        areas: names of the curves that are drawn as areas.
    """
    first, x = found.plans[0].time_s, list[float]()
    for hour in found.plans:
        begin = (hour.time_s - first) / SECONDS_PER_HOUR
        x += [begin, begin + hour.hours]
    axis = XAxis("time [h]", x)
    curves = []
    for name, value in values.items():
        y = [y for hour in found.plans for y in (value(hour),) * 2]
        curves.append(axis.curve(name, y, "area" if name in areas else "line"))
    return axis.panel(title, label, curves, guides)
