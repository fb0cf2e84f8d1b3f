"""Sections that show a comparison of two plans.

They cover the outcome, service classes, servers, targets, cards, reserves and unserved load.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from optimizer.arrays import grouped
from optimizer.features.reserves.uses import ReserveUse
from optimizer.plan.document import EXTERNAL
from optimizer.prices.table import ORIGINS
from optimizer.quantities import counted, quantity, share_text
from optimizer.queueing.measures import label_of
from optimizer.render.comparison_text import (
    anything_runs,
    changes_text,
    cost_of,
    headline,
    money_of,
    queue_names,
)
from optimizer.render.estimates import estimates_notes
from optimizer.render.money import Money, difference
from optimizer.render.names import shortened
from optimizer.section import (
    NOTHING,
    RPM,
    Column,
    FormattedValue,
    Paragraph,
    Section,
    SidePair,
    name,
    table,
    words,
)
from optimizer.studies.comparison.comparison_document import (
    Comparison,
    ComparisonRow,
    ServerRow,
    SideMetrics,
    TypeComparison,
)
from optimizer.studies.target_rows import TargetShare, targets_of

LABEL_WIDTH = 18
"""Maximum length of a plan's label in headings [characters]; longer labels are shortened."""


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Return all sections of a comparison of two plans: the outcome, then the tables with its causes."""
    view = _View(comparison, _labels(comparison), money_of(comparison))
    if comparison.same or not anything_runs(comparison):
        return [outcome_section(comparison), *_reserves(view), _unserved(view)]
    return [
        outcome_section(comparison),
        *([_loads(view)] if _loads_differ(comparison) else []),
        *([_classes(view)] if len(comparison.classes) > 1 else []),
        _servers(view, comparison.servers),
        _targets(view),
        _cards(view),
        *_type_costs(view),
        _tokens(view),
        *_reserves(view),
        _unserved(view),
    ]


def limits_sections(comparison: Comparison) -> list[Section]:
    """Return the sections of a report that compare the plans without and with limits on cards.

    They show the outcome, the cost by service class, the servers that differ and their reserves.
    """
    view = _View(comparison, _labels(comparison), money_of(comparison))
    outcome = outcome_section(comparison)
    outcome.title, outcome.name = "Limited and unlimited", "comparison"
    if comparison.same:
        outcome.text = [
            Paragraph("The numbers of cards change nothing: the limited plan is the unlimited one.")
        ]
        return [outcome]
    return [outcome, _classes(view), _servers(view, comparison.changed()), *_reserves(view)]


@dataclass(frozen=True, slots=True)
class _View:
    """A comparison with the labels of its two plans and its currency; builds columns for the tables."""

    found: Comparison
    sides: tuple[str, str]
    money: Money

    def both(self, heading: str, of: Callable[[SideMetrics], Any], **how: Any) -> Column:
        """Return one column that shows a metric of both plans as a pair.

        Args:
            heading: heading of the column.
            of: function that returns the value of a plan.
            how: further settings of the column.
        """
        return Column(heading, lambda row: _pair(row, of), sides=self.sides, **how)

    def each(self, of: Callable[[Any], Any], **how: Any) -> list[Column]:
        """Return two columns that show a value of the first and of the second plan.

        Args:
            of: function that returns the value of a plan.
            how: further settings of the columns.
        """
        return [Column(label, _of_side(of, i), **how) for i, label in enumerate(self.sides)]

    def costs(self) -> list[Column]:
        """Return two columns with the cost of the first and of the second plan."""
        money = self.money
        return self.each(lambda side: money.number(side.cost_cents_per_h), unit=money.unit, form=",.2f")

    def change(self, path: str = "difference.cost_cents_per_h") -> Column:
        """Return the column of cost differences, read from an attribute path of each row [cents/h]."""
        of = attrgetter(path)
        return Column("difference", lambda row: self.money.change(of(row)), self.money.unit)

    def other_costs(self, columns: Sequence[Column], *, rented: bool) -> list[tuple[Any, ...]]:
        """Return a row for each cost beyond list prices, with values in the columns of costs and differences.

        Args:
            columns: the columns of the table.
            rented: whether rows of the table leave out rented services.
        """
        first, second = self.sides
        rows = []
        for cost in (cost for cost in self.found.costs if rented or cost.origin != "external"):
            known = {
                columns[0].name: f"{ORIGINS[cost.origin]}: {cost.name}",
                first: self.money.number(cost.first),
                second: self.money.number(cost.second),
                "difference": self.money.change(cost.difference_cents_per_h),
            }
            rows.append(
                tuple(
                    known.get(column.name) if column.unit or column is columns[0] else None
                    for column in columns
                )
            )
        return rows

    def servers(self) -> list[ServerRow]:
        """Return the compared servers, sorted by priority and name."""
        return _in_order(self.found.servers)


def _table(
    title: str, columns: Iterable[Column], rows: Iterable[Any], name: str, total: ComparisonRow | None
) -> Section:
    """Return a section with a table; `total`, if given, becomes the last row, labelled "all"."""
    columns = tuple(columns)
    section = table(title, columns, rows, name)
    if total is not None:
        section.total = ("all", *(column.value(total) for column in columns[1:]))
    return section


# --- outcome ---------------------------------------------------------------------------------------------


def outcome_section(comparison: Comparison) -> Section:
    """Return the section that states the outcome of a comparison in sentences."""
    text = [Paragraph(headline(comparison), "bold"), Paragraph(_served(comparison)), *_lacking(comparison)]
    if comparison.changed():
        text.append(Paragraph(changes_text(comparison)))
        if comparison.transition_value_cents_per_h is not None:
            value = money_of(comparison).text(comparison.transition_value_cents_per_h)
            text.append(Paragraph(f"Transition value: {value} (with the penalty on moves)"))
    notes = (*comparison.notes, *estimates_notes(comparison.first.plan, comparison.second.plan))
    return Section(text=[*text, *(Paragraph(f"Note: {note}.", "yellow") for note in notes)])


def _served(comparison: Comparison) -> str:
    shares = [
        f"{side.label} {figures.served_in_full} of {figures.servers}"
        for side, figures in zip(comparison.both, comparison.total.both, strict=True)
        if figures is not None
    ]
    return f"Served in full: {', '.join(shares) or '0 of 0'}."


def _lacking(comparison: Comparison) -> Iterator[Paragraph]:
    """Yield a sentence with the numbers of servers that lack their reserve in each plan.

    Nothing is yielded if no server requires a reserve.
    """
    sides = [*zip(comparison.both, comparison.total.both, strict=True)]
    if any(figures and figures.reserves for _, figures in sides):
        shares = [
            f"{side.label} {figures.lack_reserve:,} of {figures.reserves:,}"
            for side, figures in sides
            if figures is not None
        ]
        yield Paragraph(f"Servers that lack their reserve: {', '.join(shares)}.")


# --- causes ----------------------------------------------------------------------------------------------


def _loads(view: _View) -> Section:
    changed = [row for row in view.servers() if _load(row.first) != _load(row.second)]
    lengths = (
        view.both("input length", lambda side: side.in_tokens, unit="tokens", form=quantity, rank=1),
        view.both("output length", lambda side: side.out_tokens, unit="tokens", form=quantity, rank=2),
    )
    columns = (
        name("server", "server"),
        view.both("rate", lambda side: side.arrival_rate_rpm, unit=RPM, form=quantity),
        Column("difference", lambda row: difference(row.difference.arrival_rate_rpm, ",.2f"), RPM, rank=3),
        *(
            lengths
            if any(any(_load(side)[1:]) for row in changed for side in (row.first, row.second))
            else ()
        ),
    )
    section = _table("Load", columns, changed, "load", view.found.total)
    rest = len({row.server for row in view.found.servers} - queue_names(view.found)) - len(changed)
    if rest:
        section.notes.append(f"… {rest:,} unchanged")
    return section


def _classes(view: _View) -> Section:
    reserves = [view.both("lack reserve", lambda side: side.lack_reserve, form="d", rank=1)]
    columns = (
        name("class", lambda row: row.service_class or "not known"),
        Column("prio", lambda row: getattr(row, "priority", None), rank=2, none=""),
        view.both("servers", lambda side: side.servers, form="d", rank=1),
        *(reserves if any(side and side.reserves for side in view.found.total.both) else ()),
        *view.costs(),
        view.change(),
        Column("relative", _relative, none="", rank=1),
    )
    section = _table("Cost by service class", columns, view.found.classes, "classes", view.found.total)
    section.rows += view.other_costs(columns, rented=False)
    if queue_names(view.found):
        section.notes.append("The cost of a shared queue counts in the class of its highest priority.")
    return section


def _relative(row: ComparisonRow) -> Any:
    before, change = cost_of(row.first), row.difference.cost_cents_per_h
    return difference(change / before if before and change else None, ".1%")


def _servers(view: _View, rows: Iterable[ServerRow]) -> Section:
    first, second = view.sides
    queues = [side.plan.group_of for side in view.found.both]
    columns = (
        name("server", "server"),
        name(first, lambda row: _placed(row.first, queues[0].get(row.server))),
        name(second, lambda row: _placed(row.second, queues[1].get(row.server))),
        words("change", _change, rank=1),
        view.change(),
    )
    section = table("Replicas by server", columns, _in_order(rows), "replicas")
    section.rows += view.other_costs(columns, rented=False)
    return section


def _change(row: ServerRow) -> str:
    """Describe the change of a server, including full service or a reserve that it gains or loses."""
    change: list[str] = [] if row.change == "none" else [row.change]
    change += {"same": [], "newly_served": ["now in full"], "newly_unserved": ["not in full"]}[row.service]
    change += {"same": [], "gained": ["gets its reserve"], "lost": ["loses its reserve"]}.get(
        row.reserve, ["other reserve"]
    )
    return ", ".join(change)


def _placed(figures: SideMetrics | None, queue: str | None) -> str:
    if figures is None:
        return NOTHING
    if queue is not None:
        return f"in {queue}"
    placed = ", ".join(
        "rented" if item.accelerator == EXTERNAL else f"{item.num_replicas} × {item.accelerator}"
        for item in figures.accelerators
    )
    return placed or ("nothing" if figures.served_in_full else "not served")


def _targets(view: _View) -> Section:
    """Return the table of each server's targets with their values in both plans, and of loads and batches."""
    found = [targets_of(side.plan) for side in view.found.both]
    by_server = [grouped((server, share) for (server, _), share in side.items()) for side in found]
    shares = grouped((metric, share) for side in found for (_, metric), share in side.items())
    columns = (
        name("server", "server"),
        *(
            Column(f"tightest {label}", partial(_tightest, side), content="whole", in_csv=False)
            for label, side in zip(view.sides, by_server, strict=True)
        ),
        view.both("carried", lambda side: side.carried_rate_rpm, unit=RPM, form=quantity, rank=1),
        view.both("batch", _batches, rank=2),
        *(_target(view, found, metric, shares[metric]) for metric in shares),
    )
    return table("Targets by server", columns, view.servers(), "targets")


def _tightest(targets: Mapping[str, Sequence[TargetShare]], row: ServerRow) -> FormattedValue | None:
    """Return a server's target that is nearest to its limit in one plan, with its value, limit and share."""
    tightest = max(targets.get(row.server, ()), key=lambda share: share.share, default=None)
    if tightest is None:
        return None
    return FormattedValue(tightest.named_cell, tightest.value, tightest.state)


def _target(
    view: _View,
    found: Sequence[Mapping[tuple[str, str], TargetShare]],
    metric: str,
    shares: Sequence[TargetShare],
) -> Column:
    """Return the column of one metric: value, limit and share of its tightest target in both plans.

    Args:
        view: the comparison.
        found: tightest targets of each plan by server and metric.
        metric: name of the metric.
        shares: all targets on the metric.
    """
    names = {share.name for share in shares}
    heading = names.pop() if len(names) == 1 else label_of(metric)

    def text(share: TargetShare | None) -> FormattedValue | None:
        if share is None:
            return None
        return FormattedValue(share.named_cell if names else share.cell, share.value)

    def of(row: ServerRow) -> SidePair:
        return SidePair(*(text(side.get((row.server, metric))) for side in found))

    return Column(f"{heading}/target", of, shares[0].unit, rank=3, sides=view.sides, csv_name=heading)


def _batches(side: SideMetrics) -> str | None:
    return "/".join(str(item.max_batch) for item in side.accelerators if item.max_batch) or None


def _cards(view: _View) -> Section:
    columns = (
        name("type", "type"),
        Column("exist", _exist, form=",d", none="unlimited", sides=view.sides),
        *view.each(lambda use: use.used, form=",d"),
        Column("difference", lambda row: difference(row.used_difference, ",d")),
    )
    return table("Cards by accelerator type", columns, view.found.types, "cards")


def _type_costs(view: _View) -> Iterator[Section]:
    """Yield the table of costs by accelerator type if any cost is known; it has a total if all are known."""
    known = [row.cost_difference_cents_per_h is not None for row in view.found.types]
    if any(known):
        columns = name("type", "type"), *view.costs(), view.change("cost_difference_cents_per_h")
        section = table("Cost by accelerator type", columns, view.found.types, "costs")
        if all(known):
            section.total = (
                "all",
                *(column.value(view.found.total) for column in (*view.costs(), view.change())),
            )
            section.rows += view.other_costs(columns, rented=True)
        yield section


def _tokens(view: _View) -> Section:
    """Return the table of each server's cost per million tokens in both plans; it is shown on request."""

    def cost(side: SideMetrics) -> float | None:
        return view.money.number(side.cost_per_million)

    heading, unit = "cost per million tokens", view.money.sum_unit
    columns = (name("server", "server"), view.both(heading, cost, unit=unit, form=",.2f"))
    title = "Cost per million input and output tokens"
    rows = [row for row in view.servers() if any(side and cost(side) for side in row.both)]
    return table(title, columns, rows, "tokens", on_request=True)


def _reserves(view: _View) -> Iterator[Section]:
    """Yield the table of servers whose reserves differ or are missing in either plan, if any requires one."""
    kept = [{item.server: item for item in side.plan.reserves} for side in view.found.both]
    rows = [
        row
        for row in view.servers()
        if row.reserve != "same"
        or any(not side[row.server].has_reserve for side in kept if row.server in side)
    ]
    if any(kept):
        columns = (
            name("server", "server"),
            Column("prio", "priority", rank=1),
            *(words(label, partial(_reserve, side)) for label, side in zip(view.sides, kept, strict=True)),
        )
        yield table("Lost and different reserves", columns, rows, "lost-reserves", may_be_empty=True)


def _reserve(reserves: Mapping[str, ReserveUse], row: ServerRow) -> str:
    """Describe the reserve that a server requires in one plan, and whether the plan provides it."""
    item = reserves.get(row.server)
    if item is None:
        return "requires none"
    parts = (
        (item.headroom_wanted, f"{item.headroom_wanted:.0%} headroom"),
        (item.spare_replicas, counted(item.spare_replicas, "spare")),
        (item.availability_target, f"availability {item.availability_target or 0:.4g}"),
    )
    wanted = ", ".join(text for size, text in parts if size)
    return f"{'has' if item.has_reserve else 'lacks'} {wanted}"


def _exist(row: TypeComparison) -> SidePair | int | None:
    limits = [use.limit for use in (row.first, row.second) if use is not None and use.limit is not None]
    return SidePair(*limits) if len(limits) == 2 else limits[0] if limits else None


def _unserved(view: _View) -> Section:
    missed = [{item.server: item for item in side.plan.unserved} for side in view.found.both]

    def share(row: ServerRow, i: int) -> float | None:
        item = missed[i].get(row.server)
        return None if row.both[i] is None else 1.0 if item is None else item.served_fraction

    def reported(row: ServerRow) -> Any:
        return missed[1].get(row.server) or missed[0].get(row.server)

    columns = (
        name("server", "server"),
        Column("prio", lambda row: reported(row).priority, rank=1),
        *(
            Column(f"served {label}", partial(share, i=i), form=share_text)
            for i, label in enumerate(view.sides)
        ),
        words("reason", lambda row: reported(row).detail),
    )
    rows = (row for row in view.servers() if reported(row))
    return table("Not served in full", columns, rows, "unserved", may_be_empty=True)


# --- values ----------------------------------------------------------------------------------------------


def _loads_differ(comparison: Comparison) -> bool:
    """Return whether the loads of both plans are known and differ for at least one common server."""
    known = comparison.first.options is not None and comparison.second.options is not None
    return known and any(
        row.first and row.second and _load(row.first) != _load(row.second) for row in comparison.servers
    )


def _load(side: SideMetrics | None) -> tuple[float | None, ...]:
    return () if side is None else (side.arrival_rate_rpm, side.in_tokens, side.out_tokens)


def _in_order(rows: Iterable[ServerRow]) -> list[ServerRow]:
    return sorted(rows, key=lambda row: (row.priority is None, row.priority or 0, row.server))


def _labels(comparison: Comparison) -> tuple[str, str]:
    short = shortened((comparison.first.label, comparison.second.label), LABEL_WIDTH)
    return short[comparison.first.label], short[comparison.second.label]


def _of_side(value: Callable[[Any], Any], side: int) -> Callable[[ComparisonRow | TypeComparison], Any]:
    return lambda row: _pair(row, value)[side]


def _pair(row: ComparisonRow | TypeComparison, value: Callable[[Any], Any]) -> SidePair:
    """Return the pair of a row's values in the two plans; the value is None for a missing plan."""
    return SidePair(*(None if side is None else value(side) for side in (row.first, row.second)))
