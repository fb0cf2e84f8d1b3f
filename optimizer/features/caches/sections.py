"""The table of result caches in reports."""

from optimizer.plan import Plan
from optimizer.quantities import quantity, share_text
from optimizer.section import RPM, Column, Section, name, table


def cache_section(plan: Plan) -> Section:
    """Return the table of hits and misses of result caches."""
    columns = (
        name("server", "server"),
        Column("hit rate", "hit_rate", form=share_text),
        Column("hits", "hits_rpm", RPM, quantity, rank=1),
        Column("misses", "misses_rpm", RPM, quantity),
    )
    note = "Loads and capacities are those of the misses; targets on percentiles and shares all requests'."
    return table("Caches", columns, plan.caches, "caches", notes=[note])
