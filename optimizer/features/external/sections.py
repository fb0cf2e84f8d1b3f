"""The table of rented external services in reports."""

from collections.abc import Iterator

from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, name, table


def rental_sections(plan: Plan) -> Iterator[Section]:
    """Yield the table of external services that a plan rents, if there are any."""
    if not plan.rented:
        return
    columns = (
        name("server", "server"),
        Column("load", "arrival_rate_rpm", RPM, quantity),
        Column("TTFT", "ttft_ms", "ms", quantity),
        Column("ITL", "itl_ms", "ms", quantity),
        Money.of(plan).column("cost", lambda item: item.cost_cents_per_h),
    )
    yield table("Rented", columns, plan.rented)
