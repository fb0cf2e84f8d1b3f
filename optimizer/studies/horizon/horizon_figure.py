"""Figure of a horizon study: load, reserved and rented cards, and cost over the hours."""

from collections.abc import Mapping, Sequence

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, XAxis, level
from optimizer.studies.horizon.horizon_document import Horizon
from optimizer.units import SECONDS_PER_HOUR


def horizon_figure(horizon: Horizon) -> Figure:
    """Return the figure of reserved and rented accelerators and the load over the hours."""
    unit, reserved = (
        cost_unit(horizon.currency),
        sum(item.reserved * item.cards for item in horizon.reservations),
    )
    gap = (
        "" if horizon.gap is None else f"; with transitions at most {percent(horizon.gap)} above the optimum"
    )
    note = f"{counted(reserved, 'card')} reserved{gap}"
    means = [
        level(item.name, in_cost_unit(item.total_cost / horizon.hours, horizon.currency))
        for item in horizon.policies[1:]
    ]
    load, served = [hour.load_rpm for hour in horizon.plans], [hour.served_rpm for hour in horizon.plans]
    loads = {"load": load} if served == load else {"load": load, "served": served}
    owned, in_use = _cards(horizon, "reserved"), _cards(horizon, "rented", "reserved")
    used = {"reserved and in use": owned, "rented": in_use} if reserved else {"rented": in_use}
    limits = [level("reserved", reserved)] if reserved else []
    cost = [in_cost_unit(hour.cost_cents_per_h, horizon.currency) for hour in horizon.plans]
    title = "Cost without transitions; lines: means of the other policies"
    panels = (
        _panel(horizon, "Load", "requests/min", loads),
        _panel(horizon, "Cards in use", "cards", used, limits, stacked=True),
        _panel(horizon, title, f"cost [{unit}]", {"reserve and rent": cost}, means),
    )
    return Figure(title=f"Plan of {counted(horizon.hours, 'hour')}", note=note, panels=panels)


def _cards(horizon: Horizon, *fields: str) -> list[int]:
    """Return the cards in use in each interval, summed over fields of `HourlyUse`."""
    uses = [hour.use for hour in horizon.plans]
    return [sum(getattr(each, name) * each.cards for each in use for name in fields) for use in uses]


def _panel(
    horizon: Horizon,
    title: str,
    label: str,
    values: Mapping[str, Sequence[float]],
    guides: Sequence[ReferenceLine] = (),
    *,
    stacked: bool = False,
) -> CurvePanel:
    """Return a panel of values that are constant within each interval.

    Args:
        title: title of the panel.
        label: name and unit of the y axis.
        values: values of the intervals, by name of the curve.
        guides: reference lines.
        stacked: whether each curve is drawn as an area above the one before it.
    """
    first, x = horizon.plans[0].time_s, list[float]()
    for hour in horizon.plans:
        begin = (hour.time_s - first) / SECONDS_PER_HOUR
        x += [begin, begin + hour.hours]
    axis, curves, base = XAxis("time [h]", x), [], list[float]()
    for name, each in values.items():
        both_ends = [y for y in each for _ in range(2)]
        curves.append(
            axis.curve(name, both_ends, "area" if stacked else "line", base=base if stacked else ())
        )
        base = both_ends
    return axis.panel(title, label, curves, guides)
