"""The table of versions in reports: their replicas, and the extra cost of more than one version."""

from collections.abc import Iterator

from optimizer.features.versions.uses import SplitUse
from optimizer.plan import Plan
from optimizer.quantities import counted, percent, quantity
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, group_name, group_rows, name, table


def version_section(plan: Plan) -> Section:
    """Return the table of versions of split servers."""
    money = Money.of(plan)
    columns = (
        group_name("server"),
        name("version", lambda row: row.item.model),
        Column("weight", lambda row: row.item.weight, form=_weight),
        Column("load", lambda row: row.item.arrival_rate_rpm, RPM, quantity, rank=1),
        Column("replicas", lambda row: row.item.num_replicas, form=",d"),
        Column("needs", lambda row: row.item.needed_replicas, form=",.2f"),
        money.column("cost", lambda row: row.item.cost_cents_per_h),
        money.column("unused", lambda row: row.item.unused_cost_cents_per_h),
    )
    rows = group_rows((server, use.versions) for server, use in plan.versions.items())
    notes = [note for server, use in plan.versions.items() for note in _notes(server, use, money)]
    return table("Versions", columns, rows, "versions", notes=notes)


def _weight(share: float) -> str:
    return f"{share:.0%}" if round(share, 2) == share else percent(share)


def _notes(server: str, use: SplitUse, money: Money) -> Iterator[str]:
    """Yield sentences on the extra cost of the split, and on whether it can be rolled back immediately."""
    one, extra = use.one_version, use.extra_cost_cents_per_h
    if one is not None and extra is not None:
        yield (
            f"{server}: {counted(use.num_replicas, 'replica')} for {money.text(use.cost_cents_per_h)}; "
            f"{use.model} alone would take {one.num_replicas:,} for {money.text(one.cost_cents_per_h)}. "
            f"The split {_difference(use.num_replicas - one.num_replicas, extra, money)}."
        )
    if use.roll_back is not None:
        can = "can" if use.roll_back else "cannot"
        yield f"{server}: {use.model} {can} take all requests at once, for a roll-back."


def _difference(replicas: int, cost_cents_per_h: float, money: Money) -> str:
    """Describe the extra cost compared with one version: ``costs 1 replica (300.00 cents/h) more``."""
    number = counted(abs(replicas), "replica")
    cost = f"{money.distance(cost_cents_per_h)} {money.unit}" if cost_cents_per_h else "nothing"
    compared = "less" if cost_cents_per_h < 0 else "more"
    if replicas * cost_cents_per_h > 0:
        return f"costs {number} ({cost}) {compared}"
    takes = f"takes {number} {'more' if replicas > 0 else 'fewer'} and " if replicas else ""
    return f"{takes}costs {cost} {compared}"
