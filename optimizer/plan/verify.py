"""Verify a plan by recomputing its values from the system, without the solver.

Cards, rates, costs, levels and changes are summed from the documents, and queue models analyse every pool
again. Values that cannot be recomputed must be consistent with the others.
"""

from optimizer.candidates import Candidates
from optimizer.candidates.arrays import tabulate_as_served
from optimizer.candidates.choices import arrays_of
from optimizer.plan.checks.caches import check_caches
from optimizer.plan.checks.deadlines import check_deadlines
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.levels import check_levels
from optimizer.plan.checks.names import check_names
from optimizer.plan.checks.queues import check_queues
from optimizer.plan.checks.replica_counts import check_replica_counts
from optimizer.plan.checks.reserves import check_reserves
from optimizer.plan.checks.rollouts import check_rollouts
from optimizer.plan.checks.routes import check_route_names, check_routes
from optimizer.plan.checks.service import check_service
from optimizer.plan.checks.shared_cards import check_card_names, check_shared_cards
from optimizer.plan.checks.shared_queues import as_planned, check_queue_names, check_shared_queues
from optimizer.plan.checks.totals import check_totals
from optimizer.plan.checks.unserved import check_unserved
from optimizer.plan.checks.versions import check_versions
from optimizer.plan.document import Plan
from optimizer.spec.system import System


def verify(plan: Plan, system: System, candidates: Candidates | None = None) -> list[str]:
    """Return the errors of a plan for a system, one line each; empty if the plan is valid.

    Maximum rates are those of the system times the factors in the plan, which only reduce them. The cards of
    kept replicas are in use.

    Args:
        plan: the plan.
        system: the planned system, with the same options.
        candidates: candidates of the system, if available; otherwise unserved servers are sized again to
        verify
            their reasons.
    """
    problems = [*check_queue_names(plan, system), *check_route_names(plan, system)]
    problems = problems or check_names(plan, as_planned(plan, system))
    problems = problems or list(check_card_names(plan, system))
    if problems:
        return problems
    if system.rate_factors != plan.factor_of_pair:
        system = system.with_rate_factors(plan.factor_of_pair)
    if system.kept != plan.kept_replicas:
        system = system.with_kept(plan.kept_replicas)
    at_hand = candidates if candidates is not None and candidates.system is system else None
    arrays = arrays_of(system) if at_hand is None else at_hand.arrays
    arrays = tabulate_as_served(system, arrays, plan.served_rpm)
    facts = Facts(plan, as_planned(plan, system), arrays, system)
    return [
        *check_service(facts),
        *check_totals(facts),
        *check_reserves(facts),
        *check_caches(facts),
        *check_versions(facts),
        *check_rollouts(facts),
        *check_replica_counts(facts),
        *check_deadlines(facts),
        *check_queues(facts),
        *check_shared_queues(facts),
        *check_shared_cards(facts, at_hand),
        *check_routes(facts, at_hand),
        *check_levels(facts),
        *check_unserved(facts, at_hand),
    ]
