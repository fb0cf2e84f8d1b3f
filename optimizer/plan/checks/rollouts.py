"""Check the extra replicas of roll-outs against the pools."""

import math

from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import RolloutUse

ROUNDING = 1e-9


def check_rollouts(facts: Facts) -> list[str]:
    """Return the errors of the extra replicas; the limits check that their cards exist."""
    true = counted_rollouts(facts)
    said, problems = facts.plan.rollouts, []
    for name in sorted(said.keys() | true.keys()):
        if said.get(name) != true.get(name):
            problems.append(
                f"{name}: {_text(true.get(name))} in its roll-out, the plan says {_text(said.get(name))}"
            )
        surges = name in true and not facts.system.options.unlimited
        if surges and len(facts.pools_of(name)) > 1:
            problems.append(f"{name}: {len(facts.pools_of(name))} pools, a server that rolls out has one")
    return problems


def counted_rollouts(facts: Facts) -> dict[str, RolloutUse]:
    """Return the extra replicas and cards of servers, counted from their pools."""
    if facts.system.options.rollout is None:
        return {}
    found: dict[str, RolloutUse] = {}
    for name, pool in facts.pools:
        surge = facts.system.servers[name].surge
        extra = math.ceil(surge * pool.num_replicas * (1 - ROUNDING))
        if extra:
            placed = facts.placed_as(name, pool.accelerator, extra)
            before = found.get(name, RolloutUse(replicas=0, cards={}))
            cards = before.cards | {placed.type: before.cards.get(placed.type, 0) + extra * placed.cards}
            found[name] = RolloutUse(replicas=before.replicas + extra, cards=cards)
    return found


def _text(use: RolloutUse | None) -> str:
    return "none more" if use is None else f"{use.replicas:,} more on cards {use.cards}"
