"""Sections of a sweep: its points, the binding limits, and the cost of meeting targets on sampled days."""

from functools import partial
from math import inf

from optimizer.limits.table import limit_label
from optimizer.quantities import counted, percent, precise, share_text
from optimizer.render.money import Money
from optimizer.render.service_text import lacking_columns
from optimizer.section import Column, Section, name, sentence, table
from optimizer.studies.sweep.binding import NO_CANDIDATE
from optimizer.studies.sweep.sweep_document import SampledDays, Sweep, SweepBinding, SweepPoint


def sweep_sections(sweep: Sweep) -> list[Section]:
    """Return the sections of a sweep."""
    sections = []
    if sweep.axes:
        ranges = any(point.until is not None for point in sweep.points)
        proof = "all proved optimal" if sweep.exact else "not all proved optimal"
        noun = "range" if ranges else "plan"
        sections += [sentence(f"{counted(len(sweep.points), noun)}, {proof}"), _points(sweep)]
    if any(point.binds for point in sweep.points):
        sections.append(_binding(sweep))
    if sweep.days is not None:
        sections += _days(sweep, sweep.days)
    return sections


def _values(sweep: Sweep) -> list[Column]:
    def text(point: SweepPoint, place: int) -> str:
        value, until = sweep.axes[place].value_in(point.values[place], sweep.currency), point.until
        return precise(value) if until is None or until == value else f"{precise(value)}–{precise(until)}"

    return [
        Column(axis.parameter, partial(text, place=place), axis.unit_in(sweep.currency))
        for place, axis in enumerate(sweep.axes)
    ]


def _points(sweep: Sweep) -> Section:
    def share(point: SweepPoint, place: int) -> float | None:
        return point.served[place].share

    priorities = [item.priority for item in sweep.points[0].served]
    columns = (
        *_values(sweep),
        Money(sweep.currency).column("cost", lambda point: point.total_cost_cents_per_h),
        *(
            Column(f"served, priority {priority}", partial(share, place=place), form=share_text, rank=1)
            for place, priority in enumerate(priorities)
        ),
        Column("unserved", "unserved", "servers", ",d"),
        *(
            Column(f"{server}: pools / both", partial(_ratio, place=place))
            for place, server in sweep.servers_with_roles
        ),
        *(lacking_columns("lacks_reserve") if sweep.requires_reserve else ()),
        Column("binds", _binds, content="words", rank=2),
    )
    return table("Plans", columns, sweep.points, "points")


def _ratio(point: SweepPoint, place: int) -> str:
    """Return the cost of prefill and decode pools divided by that of replicas that do both."""
    ratio = point.disaggregation[place].ratio
    return "" if ratio is None else "pools only" if not ratio else "both" if ratio == inf else f"{ratio:.2f}"


def _binds(point: SweepPoint) -> str:
    """Name the limits that prevent full service at a point, or else those that prevent a cheaper plan."""
    unserved = [item for item in point.binds if item.unserved]
    binds = sorted(unserved or point.binds, key=lambda item: (-item.unserved, -item.dearer, item.item))
    return ", ".join(map(_label, binds)) or "nothing"


def _label(bind: SweepBinding) -> str:
    return limit_label(bind.limit, bind.item) if bind.item else "no accelerator can serve"


def _first(row: tuple[SweepPoint, SweepBinding], column: Column) -> object:
    return column.value(row[0])


def _binding(sweep: Sweep) -> Section:
    rows = [(point, item) for point in sweep.points for item in point.binds]
    columns = (
        *(Column(column.name, partial(_first, column=column), column.unit) for column in _values(sweep)),
        name("limit", lambda row: "" if row[1].limit == NO_CANDIDATE else row[1].limit),
        name("item", lambda row: row[1].item or "no accelerator can serve"),
        Column("unserved", lambda row: row[1].unserved, "servers", ",d"),
        Column("dearer", lambda row: row[1].dearer, "servers", ",d"),
    )
    return table("Limits that bind", columns, rows, "binding", on_request=True)


def _days(sweep: Sweep, days: SampledDays) -> list[Section]:
    spread = "from a trace" if days.load_cv is None else f"load CV {precise(days.load_cv)}"
    in_full, most = share_text(days.days_in_full_share), share_text(days.most_safe_days_share)
    summary = (
        f"{counted(days.samples, 'day')}, {spread}; replanned, {in_full} of the days are served in full; "
        f"the safest of the fleets that are kept is safe on {most}"
    )
    columns = (
        Column("days", "days_share", form=".0%"),
        Money(sweep.currency).column("one fleet", lambda fleet: fleet.total_cost_cents_per_h),
        Column("planned for load ×", "load_factor", form=".2f"),
        Column("safe days", "safe_days_share", form=percent, rank=1),
        Column("safe server-days", "safe_server_days_share", form=percent, rank=1),
        Money(sweep.currency).column("replanned every day", lambda fleet: fleet.replanned_cents_per_h),
    )
    return [sentence(summary), table("Cost of being safe", columns, days.fleets, "days")]
