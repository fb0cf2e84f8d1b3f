"""Tables of price tiers and of the cost of tokens."""

from collections.abc import Iterator, Mapping

from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.plan.placements import services_of
from optimizer.render.money import Money
from optimizer.section import Column, Section, name, table


def tier_sections(plan: Plan) -> Iterator[Section]:
    """Yield the table of price tiers in use, if there are any."""
    if not plan.tiers:
        return
    money = Money.of(plan)
    columns = (
        name("units", "name"),
        Column("used", "used", form=",d"),
        money.column("cost", lambda use: use.cost_cents_per_h),
        money.column("list price", lambda use: use.cost_cents_per_h - use.difference_cents_per_h),
        money.column("tiers", lambda use: use.difference_cents_per_h),
    )
    yield table("Price tiers", columns, plan.tiers, "tiers")


def token_section(plan: Plan, costs: Mapping[str, float]) -> Section:
    """Return the table with the cost of tokens.

    It is shown by default if the plan has reserves, limits, price tiers or rented services.

    Args:
        costs: cost per million tokens of each server [cents].
    """
    money, services = Money.of(plan), services_of(plan)

    def placed(server: str) -> str:
        pools = [pool.placed_on for pool in plan.pools_of(server)]
        return EXTERNAL if server in services else " + ".join(pools)

    columns = (
        name("server", str),
        name("placed on", placed),
        money.column("cost", costs.__getitem__, unit=money.sum_unit)._replace(
            csv_name="cost per million tokens"
        ),
    )
    title = "Cost per million input and output tokens"
    shown = bool(services or plan.requires_reserve or plan.tiers or plan.limits)
    return table(title, columns, sorted(costs), "tokens", on_request=not shown, may_be_empty=True)
