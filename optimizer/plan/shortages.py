"""Why a server is not served in full."""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates, CandidateTable, Rejection
from optimizer.plan.document import Unserved
from optimizer.plan.reasons import (
    NO_ACCELERATOR,
    STOPPED_UNLIMITED,
    Shortage,
    rejection_reason,
    shortage_reason,
)
from optimizer.solvers.problem import Problem


def unserved_with_reason(
    candidates: Candidates, problem: Problem, s: int, used: IntArray, fraction: float
) -> Unserved:
    """Say why a server is not served in full: which cards are missing, or what each accelerator lacks."""
    mine = np.flatnonzero(candidates.table.server == s)
    if len(mine):
        for_least = bool(problem.load_rps[s] == 0) or fraction == 1
        reason, detail = _shortage(
            candidates, problem, s, candidates.table.take(mine), used, for_least=for_least
        )
    else:
        reason, detail = nearest_miss(candidates, s)
    return Unserved(
        server=candidates.arrays.server_names[s],
        priority=int(problem.priority[s]),
        reason=reason,
        detail=detail,
        served_fraction=fraction,
    )


def _shortage(
    candidates: Candidates,
    problem: Problem,
    s: int,
    mine: CandidateTable,
    used: IntArray,
    *,
    for_least: bool,
) -> tuple[str, str]:
    """Name the accelerator for which the fewest units are missing."""
    if problem.capacity is None:
        return STOPPED_UNLIMITED
    free = candidates.system.free_capacity
    units = np.array([free.get(name, 0) for name in candidates.arrays.type_names], np.int64)
    left = units[mine.kind] - used[mine.kind]
    c = int(np.lexsort((mine.units, mine.units - left))[0])
    kind = candidates.arrays.type_names[mine.kind[c]]
    return shortage_reason(
        Shortage(
            accelerator=candidates.arrays.accelerator_names[mine.accelerator[c]],
            type=kind,
            num_replicas=int(mine.num_replicas[c]),
            units=int(mine.units[c]),
            left=int(left[c]),
            limit=candidates.system.capacity.get(kind, 0),
            is_listed=kind in candidates.system.capacity,
            for_least=for_least,
            excluded=s in problem.excluded
            and any(candidates.arrays.server_names[s] == name for name, _ in candidates.system.kept),
        )
    )


def nearest_miss(candidates: Candidates, s: int) -> tuple[str, str]:
    """Name the rejection that misses by the smallest factor."""
    rejections = list(candidates.rejections(s))
    if not rejections:
        return NO_ACCELERATOR
    labels = {item.reason for item in rejections if item.reason != "not_allowed"} or {"not_allowed"}
    return rejection_reason(min(rejections, key=_miss), labels, len(rejections))


def _miss(rejection: Rejection) -> tuple[bool, bool, float]:
    """Return a key that puts measured misses first, by their factor, and what is not allowed last."""
    if rejection.factor is None:
        return True, rejection.reason == "not_allowed", 0.0
    return False, False, rejection.factor
