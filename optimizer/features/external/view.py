"""Computes the rented external services of a plan."""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates
from optimizer.candidates.table import Source
from optimizer.features.external.offers import rented_cost, rented_per_million
from optimizer.features.external.uses import Rented
from optimizer.plan.checks.facts import Facts
from optimizer.schema import Server
from optimizer.solvers.problem import Problem
from optimizer.units import SECONDS_PER_MINUTE


def rentals(candidates: Candidates, problem: Problem, replicas: IntArray) -> dict[str, Rented]:
    """Return the external services that a solution uses, by server."""
    table, result = problem.table, {}
    for c in np.flatnonzero((table.source == Source.rental) & (replicas > 0)).tolist():
        s, cost = table.server[c], float(table.cost_per_replica[c] * replicas[c])
        name = candidates.arrays.server_names[s]
        load_rpm = float(problem.load_rps[s] * SECONDS_PER_MINUTE)
        result[name] = rental(candidates.system.servers[name], load_rpm, cost)
    return result


def recomputed_rentals(facts: Facts) -> dict[str, Rented]:
    """Return the external services of a plan at the loads of its system, by server."""
    result = {}
    for name in facts.placed.rented:
        server, load_rpm = facts.whole.servers[name], facts.load_rpm[name]
        assert server.external is not None
        result[name] = rental(server, load_rpm, rented_cost(server.external, server.current.load, load_rpm))
    return result


def rental(server: Server, rate_rpm: float, cost_cents_per_h: float) -> Rented:
    """Return the plan's entry for a server that rents its external service.

    Args:
        rate_rpm: load of the server [requests/min].
        cost_cents_per_h: cost of the external service at that load [cents/h].
    """
    assert server.external is not None
    return Rented.taken_from(
        server.external,
        server=server.name,
        arrival_rate_rpm=rate_rpm,
        cost_cents_per_h=cost_cents_per_h,
        cost_per_million=rented_per_million(server.external, server.current.load),
    )
