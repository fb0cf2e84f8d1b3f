"""Check the reasons of servers that are not fully served.

Candidates and rejections of these servers are recomputed from the system unless they are available. The
nearest accelerator follows from the remaining capacity.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from optimizer.candidates import Candidates, find_candidates
from optimizer.candidates.arrays import rolls_out
from optimizer.features.reserves.checks import without_reserves
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.plan.checks.differences import differences
from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import Unserved
from optimizer.plan.shortages import Shortages
from optimizer.solvers.problem import gap_target
from optimizer.spec.prices import tiered
from optimizer.spec.streams import members_of
from optimizer.spec.system import System


def check_unserved(facts: Facts, candidates: Candidates | None) -> list[str]:
    """Return wrong priorities, reasons and details of unserved servers.

    Args:
        facts: the plan and its system.
        candidates: candidates of the system, if available.
    """
    plan = facts.plan
    shortages, problems = _shortages(facts, candidates or _sized(facts)), list[str]()
    for i, item in enumerate(plan.unserved):
        true = _true(facts, shortages, item)
        problems += differences(true, item, f"unserved.{i}")
        if true.reason == "solver_stopped" and _is_exact(facts):
            problems.append(f"{item.server}: there are enough cards to serve it, so the plan is not optimal")
    return problems or [*_before_reserves(facts, shortages.candidates)]


def _shortages(facts: Facts, candidates: Candidates) -> Shortages:
    # Only a plan around running replicas can exclude a server.
    blocked = {item.server for item in facts.plan.unserved if item.reason == "blocked"}
    queues = {
        name for name, use in facts.plan.shared_queues.items() if blocked & {*use.members, *use.unserved}
    }
    return Shortages(candidates, facts.placed, blocked | queues)


def _true(facts: Facts, shortages: Shortages, item: Unserved) -> Unserved:
    """Return an unserved server with the reason that follows from the other placements."""
    uses = facts.plan.shared_queues
    queue = next((q for q, use in uses.items() if item.server in (*use.members, *use.unserved)), None)
    if queue is None:
        return shortages.of_server(item.server, item.served_fraction)
    return shortages.of_member(queue, item.server, [*uses[queue].members], item.served_fraction)


def _is_exact(facts: Facts) -> bool:
    """Return whether the plan is called optimal, and no gap is allowed."""
    pairs = len(facts.system.servers) * len(facts.system.accelerators)
    return facts.plan.status == "optimal" and gap_target(facts.system.options, pairs) == 0


def _before_reserves(facts: Facts, candidates: Candidates) -> Iterator[str]:
    """Yield servers that cards of reserves could serve, in full or under a policy by another replica."""
    if not facts.plan.reserves or not _is_exact(facts):
        return
    lean = without_reserves(facts)
    shortages = _shortages(lean, candidates)
    for item in (item for item in facts.plan.unserved if item.reason == "capacity"):
        name = item.server
        if _true(lean, shortages, item).reason == "solver_stopped":
            yield f"{name}: cards of reserves could serve it in full, but load comes before reserves"
        elif _gets_another_replica(lean, shortages, item):
            yield f"{name}: cards of reserves could serve more of it, but load comes before reserves"


def _gets_another_replica(lean: Facts, shortages: Shortages, item: Unserved) -> bool:
    """Return whether the policy gives a server another replica in a plan without reserves.

    This is known if servers served in full can run nowhere else, so that they use the same cards in the stage
    that serves others in part.
    """
    system, server, pools = lean.whole, lean.whole.servers.get(item.server), lean.pools_of(item.server)
    tiers = bool(tiered(system.accelerators, system.capacity))
    if server is None or not lean.shares_leftover or lean.rented or tiers or rolls_out(system, server):
        return False
    in_full = (name for name, mine in lean.plan.allocations.items() if mine and name not in lean.listed)
    most = server.max_num_replicas
    full = most is not None and sum(pool.num_replicas for pool in pools) >= most
    if full or any(_can_move(system, name) for name in in_full):
        return False
    table = shortages.candidates.table
    s = shortages.candidates.arrays.server_names.index(item.server)
    rows = np.flatnonzero((table.server == s) & table.meets_targets_below_max_rate)
    here = {pool.accelerator for pool in pools} if pools and not lean.mixed else system.accelerators.keys()
    return any(
        needs and needs[0].accelerator in here and all(need.missing <= 0 for need in needs)
        for needs in shortages.needs(item.server, rows, [1] * len(rows), ())
    )


def _can_move(system: System, name: str) -> bool:
    """Return whether a server can run on several accelerators, or its queue can serve others in part."""
    server = system.servers[name]
    allowed = [
        accelerator
        for model, accelerator in system.profiles
        if model == server.model and (server.accelerators is None or accelerator in server.accelerators)
    ]
    return isinstance(server, SharedQueue) or len(allowed) > 1


def _sized(facts: Facts) -> Candidates:
    """Size the unserved servers on every accelerator."""
    servers = {
        name: server
        for name, server in facts.whole.servers.items()
        if any(part.name in facts.listed for part in members_of(server))
    }
    return find_candidates(replace(facts.whole, servers=MappingProxyType(servers), kept=MappingProxyType({})))
