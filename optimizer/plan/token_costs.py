"""Cost per million input and output tokens of replicas and rented services."""

from typing import TYPE_CHECKING

from optimizer.plan.document import Plan
from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR

if TYPE_CHECKING:
    from optimizer.features.external.uses import Rented
    from optimizer.schema.pools import Pool


def cost_per_million(
    cost_cents_per_h: float, carried_rpm: float, in_tokens: float, out_tokens: float
) -> float | None:
    """Return the cost per million input and output tokens [cents]; None without tokens (eq. 150)."""
    tokens_per_h = carried_rpm * MINUTES_PER_HOUR * (in_tokens + out_tokens)
    return 1e6 * cost_cents_per_h / tokens_per_h if tokens_per_h > 0 else None


def token_costs(plan: Plan, system: System) -> dict[str, float]:
    """Return the cost per million tokens of each server with load [cents], at list prices."""
    rented = {item.server: item for item in plan.rented}
    found = {}
    for name in sorted(plan.allocations):
        items: list[Pool | Rented] = [*plan.pools_of(name), *([rented[name]] if name in rented else [])]
        load = system.servers[name].current.load
        carried = sum(item.arrival_rate_rpm for item in items)
        cost = sum(item.cost_cents_per_h for item in items)
        each = cost_per_million(cost, carried, load.in_tokens, load.out_tokens)
        if each is not None:
            found[name] = each
    return found
