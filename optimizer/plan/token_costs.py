"""Computes the cost per million tokens, input plus output, of replicas and rented services."""

from optimizer.features.nodes.view import node_shares_cents_per_h
from optimizer.plan.document import Plan
from optimizer.plan.placements import rows_of
from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR


def cost_per_million(
    cost_cents_per_h: float, carried_rpm: float, in_tokens: float, out_tokens: float
) -> float | None:
    """Return the cost per million tokens, input plus output [cents] (eq. 150); None without tokens."""
    # Requests/h times tokens per request, input plus output.
    tokens_per_h = carried_rpm * MINUTES_PER_HOUR * (in_tokens + out_tokens)
    return 1e6 * cost_cents_per_h / tokens_per_h if tokens_per_h > 0 else None


def token_costs(plan: Plan, system: System) -> dict[str, float]:
    """Return the cost per million tokens at list prices [cents] of each server with load, by name."""
    system = plan.planned_in(system)
    placed, result = rows_of(plan), dict[str, float]()
    in_nodes = node_shares_cents_per_h(plan.nodes)
    for name in sorted(plan.allocations):
        rows, load = placed.get(name, ()), system.servers[name].current.load
        carried, cost = sum(row.rate_rpm for row in rows), sum(row.cost_cents_per_h for row in rows)
        cost += sum(share for (server, _), share in in_nodes.items() if server == name)
        each = cost_per_million(cost, carried, load.in_tokens, load.out_tokens)
        if each is not None:
            result[name] = each
    return result


def mean_token_cost(plan: Plan, system: System) -> float | None:
    """Return the cost per million tokens [cents] of all servers with tokens together; None without tokens."""
    planned, placed = plan.planned_in(system), rows_of(plan)
    costs = token_costs(plan, system)
    tokens = {name: planned.servers[name].current.load for name in costs}
    millions_per_h = {
        name: sum(row.rate_rpm for row in placed[name])
        * MINUTES_PER_HOUR
        * (load.in_tokens + load.out_tokens)
        / 1e6
        for name, load in tokens.items()
    }
    total = sum(millions_per_h.values())
    return sum(costs[name] * millions for name, millions in millions_per_h.items()) / total if total else None
