"""Verifies a plan by recomputing its values from the system, without the solver.

First, names, counts and batch limits are checked. Then queue models measure every pool again, and all
sections that follow from the placements are built again and compared value by value. Values that cannot be
recomputed, such as bounds, must be consistent with the others. If all of this is correct, pools are also
measured with fewer replicas, to check reserves and the reasons of unserved servers.
"""

from collections.abc import Iterator

from optimizer.candidates import Candidates
from optimizer.candidates.arrays import tabulate_as_served
from optimizer.candidates.pairs import arrays_of
from optimizer.features.reserves.checks import check_before_reserves, check_reserves
from optimizer.features.table import FEATURES, part_of
from optimizer.features.views import recomputed_fields
from optimizer.limits.cards import CARDS
from optimizer.plan.checks.differences import differences
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.levels import check_levels
from optimizer.plan.checks.names import as_planned, check_names
from optimizer.plan.checks.pools import check_members, check_pools
from optimizer.plan.checks.service import check_service
from optimizer.plan.checks.unserved import check_unserved, sized
from optimizer.plan.document import Plan
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.tolerances import SAME


@checks_documents
def verify(plan: Plan, system: System, candidates: Candidates | None = None) -> list[str]:
    """Return the errors of a plan for a system, one line each; empty if the plan is valid.

    Factors in the plan can only reduce the maximum rates that follow from the system. The cards of kept
    replicas count as used.

    Args:
        system: the planned system, with the same options.
        candidates: candidates of the system, if available; otherwise unserved servers are sized again to
            verify their reasons.
    """
    problems = check_names(plan, system)
    if problems:
        return problems
    system = plan.planned_in(system)
    if system.rate_factors != plan.factor_of_pair:
        system = system.with_rate_factors(plan.factor_of_pair)
    if system.kept != plan.kept_replicas:
        system = system.with_kept(plan.kept_replicas)
    # Candidates of another system, such as one without kept replicas, do not apply.
    at_hand = candidates if candidates is not None and candidates.system is system else None
    arrays = arrays_of(system) if at_hand is None else at_hand.arrays
    arrays = tabulate_as_served(system, arrays, plan.served_rpm)
    facts = Facts(plan, as_planned(plan, system), arrays, system)
    return (
        # Each group of checks relies on the ones before it, so later groups run only without errors.
        check_service(facts)
        or [
            *check_pools(facts),
            *check_members(facts),
            *_check_features(facts, at_hand),
            *_check_limits(facts),
            *_check_sections(facts, at_hand),
        ]
        or [
            *(check_reserves(facts) if plan.reserves else ()),
            *check_levels(facts),
            *(_check_unserved(facts, at_hand or sized(facts)) if plan.unserved else ()),
        ]
    )


def _check_features(facts: Facts, candidates: Candidates | None) -> Iterator[str]:
    """Yield the errors that the checks of the system's features find."""
    for feature in FEATURES:
        if feature.has_checks and feature.name in facts.whole.features:
            yield from part_of(feature, "checks").check(facts, candidates)


def _check_unserved(facts: Facts, candidates: Candidates) -> list[str]:
    return check_unserved(facts, candidates) or [*check_before_reserves(facts, candidates)]


def _check_limits(facts: Facts) -> Iterator[str]:
    """Yield an error for each limit that the plan and kept replicas together exceed."""
    for limit, amounts in facts.placed.amounts.items():
        slack = 0.0 if limit.name == CARDS else SAME
        for item, amount in amounts.items():
            used, kept = facts.placed.units.used(limit, item), facts.kept.used(limit, item)
            # Cards are whole numbers; other amounts can differ by rounding.
            if used + kept > amount * (1 + slack):
                shown = limit.in_currency(facts.system.currency)
                text = f"{shown.amount_text(item, used + kept)} are used"
                yield f"{text}{', with those kept' if kept else ''}; {shown.number(amount)} are available"


def _check_sections(facts: Facts, candidates: Candidates | None) -> Iterator[str]:
    """Yield the differences of all sections from those that follow from the placements."""
    for name, true in recomputed_fields(facts, candidates).items():
        yield from differences(true, getattr(facts.plan, name), Plan.model_fields[name].alias or name)
