"""A horizon as a picture: load, reserved and rented cards, and cost over the hours."""

from collections.abc import Callable, Mapping

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, Series
from optimizer.studies.horizon.horizon_document import Horizon, HourPlan
from optimizer.units import SECONDS_PER_HOUR


def horizon_figure(found: Horizon) -> Figure:
    """Return the figure of reserved and rented accelerators and the load over the hours."""
    unit, reserved = cost_unit(found.currency), sum(item.reserved * item.cards for item in found.reservations)
    gap = "" if found.gap is None else f"; with transitions at most {percent(found.gap)} above the optimum"
    note = f"{counted(reserved, 'card')} reserved{gap}"
    means = tuple(
        ReferenceLine(
            name=item.name,
            value=in_cost_unit(item.total_cost / found.hours, found.currency),
            axis="y",
        )
        for item in found.policies[1:]
    )
    all_served = all(_served(hour) == _load(hour) for hour in found.plans)
    panels = (
        _panel(found, "Load", "requests/min", {"load": _load} | ({} if all_served else {"served": _served})),
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


def _load(hour: HourPlan) -> float:
    return hour.load_rpm


def _served(hour: HourPlan) -> float:
    return hour.served_rpm


def _cards(hour: HourPlan, which: str) -> float:
    return float(sum(getattr(item, which) * item.cards for item in hour.use))


def _panel(
    found: Horizon,
    title: str,
    label: str,
    values: Mapping[str, Callable[[HourPlan], float]],
    guides: tuple[ReferenceLine, ...] = (),
    areas: tuple[str, ...] = (),
) -> CurvePanel:
    """Return a panel of values that are constant within each hour."""
    first, x = found.plans[0].time_s, list[float]()
    for hour in found.plans:
        begin = (hour.time_s - first) / SECONDS_PER_HOUR
        x += [begin, begin + hour.hours]
    series = tuple(
        Series(
            name=name,
            x=tuple(x),
            y=tuple(y for hour in found.plans for y in (value(hour),) * 2),
            style="area" if name in areas else "line",
        )
        for name, value in values.items()
    )
    return CurvePanel(title=title, x_label="time [h]", y_label=label, series=series, guides=guides)
