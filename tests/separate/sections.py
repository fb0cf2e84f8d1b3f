"""Separate servers as a table."""

from collections.abc import Iterator

from optimizer.plan import Plan
from optimizer.section import Column, Section, name, table


def separate_sections(plan: Plan) -> Iterator[Section]:
    """Yield the separate servers and their accelerator types."""
    if not plan.separate:
        return
    columns = (
        name("server", "server"),
        Column("runs on", lambda use: ", ".join(use.types), content="name", none="nothing"),
        name("apart from", "apart_from"),
        Column("which runs on", lambda use: ", ".join(use.other_types), content="name"),
    )
    yield table("Separate servers", columns, plan.separate, "separate")
