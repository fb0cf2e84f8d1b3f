"""Find the reason why a server is not fully served."""

from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, Rejection
from optimizer.candidates.power import power_of_rows
from optimizer.limits.limit import PlacedReplicas
from optimizer.limits.tiers import TIERS
from optimizer.plan.document import Unserved
from optimizer.plan.reasons import (
    NO_ACCELERATOR,
    NO_SHARED_CARD,
    STOPPED_UNLIMITED,
    Need,
    nearest_need,
    rejection_reason,
    shortage_reason,
)
from optimizer.solvers.limit_rows import LimitItem
from optimizer.solvers.problem import Problem
from optimizer.spec.placed import needs_power, placed, stock_of

ROUNDING_DIGITS = 6
"""Decimal digits to which amounts of cards are rounded."""


def unserved_with_reason(
    candidates: Candidates,
    problem: Problem,
    s: int,
    left: FloatArray,
    others: Sequence[PlacedReplicas],
    fraction: float,
) -> Unserved:
    """Return a server that is not fully served, with the reason: a limit, or rejections.

    Args:
        candidates: the candidates.
        problem: the planning problem.
        s: index of the server.
        left: remaining amount of each limited item, shape (R,).
        others: the replicas of the plan.
        fraction: served fraction of the server.
    """
    rows = np.flatnonzero(candidates.table.server == s)
    if len(rows):
        for_least = bool(problem.load_rps[s] == 0) or fraction == 1
        reason, detail = shortage(candidates, problem, rows, left, others, for_least=for_least)
    elif candidates.shared is not None and s in candidates.shared.servers:
        reason, detail = NO_SHARED_CARD
    else:
        reason, detail = nearest_miss(candidates, s)
    return Unserved(
        server=candidates.arrays.server_names[s],
        priority=int(problem.priority[s]),
        reason=reason,
        detail=detail,
        served_fraction=fraction,
    )


def shortage(
    candidates: Candidates,
    problem: Problem,
    rows: IntArray,
    left: FloatArray,
    others: Sequence[PlacedReplicas],
    *,
    for_least: bool,
) -> tuple[str, str]:
    """Return reason and detail of the candidate of a server that exceeds the limits least.

    Args:
        candidates: the candidates.
        problem: the planning problem.
        rows: candidates of one server.
        left: remaining amount of each limited item, shape (R,).
        others: the other replicas of the plan.
        for_least: whether the replicas are for the server's minimum instead of its load.
    """
    s = int(candidates.table.server[rows[0]])
    items = _remaining(problem, left, others)
    if not items:
        return STOPPED_UNLIMITED
    arrays, system, table = candidates.arrays, candidates.system, candidates.table
    name, stock = arrays.server_names[s], stock_of(system, arrays.type_names)
    amounts = {key: row.limit.amounts(stock)[row.item] for key, (row, _) in items.items()}
    adding = {row.limit: row.limit.adding_to(others) for row, _ in items.values()}
    options = []
    power_w = power_of_rows(candidates, table) if needs_power(system) else np.zeros(len(table))
    for c in rows.tolist():
        accelerator, count = arrays.accelerator_names[table.accelerator[c]], int(table.num_replicas[c])
        here = [placed(system, name, accelerator, count, float(power_w[c]))]
        added, needs = {limit: add(here) for limit, add in adding.items()}, []
        for key, (row, there) in items.items():
            if needed := added[row.limit].get(row.item, 0.0):
                needs.append(Need(accelerator, count, row.limit, row.item, needed, there, amounts[key]))
        options.append(needs)
    excluded = s in problem.excluded and any(name == kept for kept, _ in system.kept)
    return shortage_reason(nearest_need(options), stock, for_least=for_least, excluded=excluded)


def _remaining(
    problem: Problem, left: FloatArray, others: Sequence[PlacedReplicas]
) -> dict[tuple[str, str], tuple[LimitItem, float]]:
    """Return the remaining amount of each limited item, with the first of its rows."""
    rows = {row.key: r for r, row in reversed([*enumerate(problem.limits.items)])}
    used = {row.limit: row.limit.used(others) for row in problem.limits.items if row.limit.follows}
    found = {}
    for key, r in sorted(rows.items(), key=lambda item: item[1]):
        row = problem.limits.items[r]
        if row.limit in used:
            amount = round(float(problem.limits.amount[r]), ROUNDING_DIGITS)  # with an allowance for rounding
            found[key] = row, amount - used[row.limit].get(row.item, 0.0)
        elif row.limit.name != TIERS:
            found[key] = row, float(left[r])
    return found


def nearest_miss(candidates: Candidates, s: int) -> tuple[str, str]:
    """Return reason and detail of the rejection with the smallest factor."""
    rejections = list(candidates.rejections(s))
    if not rejections:
        return NO_ACCELERATOR
    labels = {item.reason for item in rejections if item.reason != "not_allowed"} or {"not_allowed"}
    return rejection_reason(min(rejections, key=_miss), labels, len(rejections))


def _miss(rejection: Rejection) -> tuple[bool, bool, float]:
    """Return a sort key: rejections with numbers first, by factor; `not_allowed` last."""
    if rejection.factor is None:
        return True, rejection.reason == "not_allowed", 0.0
    return False, False, rejection.factor
