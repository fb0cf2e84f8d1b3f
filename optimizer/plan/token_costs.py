"""Computes the cost per million tokens, input plus output, of replicas and rented services."""

from optimizer.features.nodes.view import node_share_cents_per_h
from optimizer.plan.document import Plan
from optimizer.plan.placements import parts_of
from optimizer.schema.pools import Pool
from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR


def cost_per_million(
    cost_cents_per_h: float, carried_rpm: float, in_tokens: float, out_tokens: float
) -> float | None:
    """Return the cost per million tokens, input plus output [cents] (eq. 150); None without tokens."""
    tokens_per_h = carried_rpm * MINUTES_PER_HOUR * (in_tokens + out_tokens)
    return 1e6 * cost_cents_per_h / tokens_per_h if tokens_per_h > 0 else None


def token_costs(plan: Plan, system: System) -> dict[str, float]:
    """Return the cost per million tokens at list prices [cents] of each server with load, by name."""
    parts, found = parts_of(plan), {}
    for name in sorted(plan.allocations):
        mine, load = [part for _, part in parts.get(name, ())], system.servers[name].current.load
        carried, cost = sum(part.rate_rpm for part in mine), sum(part.cost_cents_per_h for part in mine)
        figures = (part.figures for part in mine)
        pools = (pool for pool in figures if isinstance(pool, Pool))
        cost += sum(node_share_cents_per_h(plan, system, name, pool) for pool in pools)
        each = cost_per_million(cost, carried, load.in_tokens, load.out_tokens)
        if each is not None:
            found[name] = each
    return found
