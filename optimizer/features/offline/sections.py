"""The table of offline work and its deadlines in reports."""

from optimizer.plan import Plan
from optimizer.quantities import quantity, share_text
from optimizer.section import RPM, Column, Section, name, table


def deadline_section(plan: Plan) -> Section:
    """Return the table of offline work and its completion times."""
    columns = (
        name("server", "server"),
        Column("requests", "requests", form=quantity),
        Column("deadline", "hours", "h", quantity),
        Column("capacity", "capacity_rpm", RPM, quantity, rank=1),
        Column("finishes", "finishes_h", "h", quantity, none="never"),
        Column("done by then", lambda item: item.done_in_time / item.requests, form=share_text),
    )
    late = [item.server for item in plan.deadlines if not item.in_time]
    notes = [f"Not done by their deadlines: {', '.join(late)}."] if late else []
    return table("Offline work", columns, plan.deadlines, "deadlines", notes=notes)
