"""The table of rented external services in reports."""

from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, name, table


def rental_section(plan: Plan) -> Section:
    """Return the table of external services that a plan rents."""
    columns = (
        name("server", "server"),
        Column("load", "arrival_rate_rpm", RPM, quantity),
        Column("TTFT", "ttft_ms", "ms", quantity),
        Column("ITL", "itl_ms", "ms", quantity),
        Money.of(plan).column("cost", lambda item: item.cost_cents_per_h),
    )
    return table("Rented", columns, plan.rented)
