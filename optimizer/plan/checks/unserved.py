"""Checks the stated reasons for servers that are not fully served.

Candidates and rejections of these servers are recomputed from the system unless they are available. The
remaining cards determine which accelerator lacks the fewest.
"""

from dataclasses import replace
from types import MappingProxyType

from optimizer.candidates import Candidates, find_candidates
from optimizer.plan.checks.differences import differences
from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import Unserved
from optimizer.plan.shortages import Shortages
from optimizer.solvers.problem import gap_target
from optimizer.spec.streams import members_of


def check_unserved(facts: Facts, candidates: Candidates) -> list[str]:
    """Return errors for wrong priorities, reasons and details of unserved servers.

    Args:
        facts: the plan and its system.
        candidates: candidates of the system.
    """
    plan = facts.plan
    shortages, problems = shortages_of(facts, candidates), list[str]()
    for i, item in enumerate(plan.unserved):
        true = true_reason(facts, shortages, item)
        problems += differences(true, item, f"unserved.{i}")
        # An optimal plan leaves nobody out who fits.
        if true.reason == "solver_stopped" and is_exact(facts):
            problems.append(f"{item.server}: there are enough cards to serve it, so the plan is not optimal")
    return problems


def shortages_of(facts: Facts, candidates: Candidates) -> Shortages:
    """Return the object that finds reasons for the servers that a plan does not serve in full."""
    # Only a plan for a running fleet can exclude a server.
    blocked = {item.server for item in facts.plan.unserved if item.reason == "blocked"}
    queues = {
        name for name, use in facts.plan.shared_queues.items() if blocked & {*use.members, *use.unserved}
    }
    return Shortages(candidates, facts.placed, blocked | queues)


def true_reason(facts: Facts, shortages: Shortages, item: Unserved) -> Unserved:
    """Return an unserved server with the correct reason, given the other placements."""
    uses = facts.plan.shared_queues
    queue = next((q for q, use in uses.items() if item.server in (*use.members, *use.unserved)), None)
    if queue is None:
        return shortages.of_server(item.server, item.served_fraction)
    return shortages.of_member(queue, item.server, [*uses[queue].members], item.served_fraction)


def is_exact(facts: Facts) -> bool:
    """Return whether the plan is marked optimal and the options allow no gap."""
    pairs = len(facts.system.servers) * len(facts.system.accelerators)
    return facts.plan.status == "optimal" and gap_target(facts.system.options, pairs) == 0


def sized(facts: Facts) -> Candidates:
    """Find the candidates and rejections of the unserved servers on every accelerator."""
    servers = {
        name: server
        for name, server in facts.whole.servers.items()
        if any(part.name in facts.listed for part in members_of(server))
    }
    return find_candidates(replace(facts.whole, servers=MappingProxyType(servers), kept=MappingProxyType({})))
