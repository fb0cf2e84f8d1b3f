"""Does a plan hold? Plain arithmetic on the plan and the system; the solver is not asked.

Units are counted in integers; rates, costs, levels and changes are added up again from the documents;
every pool is put through the queueing model again; what cannot be computed again must agree with the rest.
"""

from optimizer.candidates import Candidates
from optimizer.candidates.choices import arrays_of
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.levels import check_levels
from optimizer.plan.checks.names import check_names
from optimizer.plan.checks.queues import check_queues
from optimizer.plan.checks.reserves import check_reserves
from optimizer.plan.checks.service import check_service
from optimizer.plan.checks.totals import check_totals
from optimizer.plan.checks.unserved import check_unserved
from optimizer.plan.document import Plan
from optimizer.spec.system import System


def verify(plan: Plan, system: System, candidates: Candidates | None = None) -> list[str]:
    """Return what is wrong with a plan for a system, one line each; nothing if it holds.

    Largest rates are those of the system times the factors that the plan states, which only tighten them; the
    cards of replicas that it says are kept are in use.

    Args:
        plan: what to check.
        system: what it was made for, with the options that it was made with.
        candidates: those of the system, if they are at hand; otherwise servers that are not served are sized
            again to see whether the reasons given for them are true.
    """
    problems = check_names(plan, system)
    if problems:
        return problems
    if system.rate_factors != plan.factor_of_pair:
        system = system.with_rate_factors(plan.factor_of_pair)
    if system.kept != plan.kept_replicas:
        system = system.with_kept(plan.kept_replicas)
    at_hand = candidates if candidates is not None and candidates.system is system else None
    facts = Facts(plan, system, arrays_of(system) if at_hand is None else at_hand.arrays)
    return [
        *check_service(facts),
        *check_totals(facts),
        *check_reserves(facts),
        *check_queues(facts),
        *check_levels(facts),
        *check_unserved(facts, at_hand),
    ]
