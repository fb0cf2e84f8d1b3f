"""Plans for a running fleet in which unserved servers keep those of their replicas that still fit.

A running server without an allocation keeps replicas on cards that no server of equal or higher priority
uses. Servers of lower priority are then planned again around the kept replicas.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.candidates import SizingMemo
from optimizer.limits.limit import PlacedReplicas
from optimizer.limits.table import limit_named
from optimizer.pipeline import Solved, Timings, solve_in_full
from optimizer.plan import Plan
from optimizer.plan.placements import PlacementGroup, placements_of
from optimizer.solvers.deadline import Deadline
from optimizer.spec.placed import PlacedUnits, placed
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards

Runs = Mapping[str, Mapping[str, int]]
"""Number of running replicas, by server and accelerator."""
Kept = dict[tuple[str, str], int]
"""Number of replicas that keep their cards, by server and accelerator."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Solves systems until a common deadline."""

    deadline: Deadline
    memo: SizingMemo | None = None
    timings: Timings | None = None

    def solve(self, system: System, kept: Kept, excluded: Iterable[str]) -> Solved:
        """Plan a system around kept replicas, without allocations for excluded servers.

        Raises:
            SolverError: the solver failed.
        """
        return solve_in_full(
            system.without_external().with_kept(kept),
            timings=self.timings,
            deadline=self.deadline,
            memo=self.memo,
            excluded=frozenset(excluded),
        )

    @property
    def may_repeat(self) -> bool:
        """Whether there is time for another solve."""
        return not self.deadline.passed


def plan_keeping(system: System, runs: Runs, planner: Planner, excluded: Iterable[str] = ()) -> Plan:
    """Return the plan of a running fleet, including replicas that servers without an allocation keep.

    Args:
        system: the system to plan; its kept replicas stay.
        runs: running replicas.
        planner: the solver; no re-solves after its deadline.
        excluded: servers that get no replicas.

    Raises:
        SolverError: the solver failed.
    """
    kept, excluded = dict(system.kept), set(excluded)
    settled = by_server(kept)
    runs = {name: pools for name, pools in runs.items() if name not in settled}
    while True:
        solved = planner.solve(system, kept, excluded)
        plan, again = solved.plan, False
        while (group := _next_group(plan, runs, excluded)) and not again:
            lowest = system.priority(system.servers[group[0]]) if planner.may_repeat else None
            kept |= share_out({name: runs[name] for name in group}, left_by(system, plan, kept, lowest))
            excluded.update(system.served_with(group))
            again = left_by(system, plan, kept).is_short
        if not again:
            return plan if kept == system.kept else solved.with_kept(kept).plan


def _next_group(plan: Plan, runs: Runs, excluded: set[str]) -> list[str]:
    """Return the running servers without an allocation that have the highest remaining priority."""
    waiting = [
        item for item in plan.left_out.values() if item.server not in excluded and runs.get(item.server)
    ]
    first = min((item.priority for item in waiting), default=0)
    return sorted(item.server for item in waiting if item.priority == first)


def left_by(system: System, plan: Plan, kept: Kept, lowest: int | None = None) -> FreeCards:
    """Return the cards and other amounts that kept replicas and the allocations of a plan leave free.

    Args:
        kept: kept replicas.
        lowest: lowest priority whose allocations are counted; None counts all.
    """

    def counts(name: str) -> bool:
        return lowest is None or system.priority(system.servers[name]) <= lowest

    counted: list[PlacementGroup] = []
    others: list[PlacementGroup] = []
    for row in placements_of(plan):
        # Shared cards count if one of their servers does, because they cannot be divided.
        any_counts = any(counts(part.server) for part in row.rows if not part.is_member)
        (counted if any_counts else others).append(row)
    cards = FreeCards.beside(system, counted)
    for row in counted:
        if row.mode == "own":
            cards.take(*row.spot, row.count)
    # Other servers are cut down to what they use without load; the rest of the limits is free.
    at_rest = PlacedUnits(system, [_at_rest(system, row) for row in others if row.mode == "own"])
    items = {str(item): item for _, item in cards.limits}
    for use in plan.limits:
        limit, item = limit_named(use.limit), items.get(use.item, use.item)
        # What is left of a limit, plus what cutting down other servers frees.
        freed = at_rest.used(limit, item) if limit else 0.0
        cards.limits[use.limit, item] = min(use.amount, use.amount - use.used + freed)
    for (name, accelerator), replicas in kept.items():
        cards.take(name, accelerator, replicas)
    return cards


def _at_rest(system: System, row: PlacementGroup) -> PlacedReplicas:
    """Return a pool with its minimum use of limits, which is that without load and without roll-outs."""
    item = system.accelerators.get(row.spot.accelerator)
    power_w = 0.0 if item is None else float(item.power.at(np.zeros(1))[0])
    return placed(system, *row.spot, row.count, power_w)._replace(surge=0.0)


def by_server(kept: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Group kept replicas by server, then by accelerator."""
    result: dict[str, dict[str, int]] = {}
    for (name, accelerator), number in kept.items():
        result.setdefault(name, {})[accelerator] = number
    return result


def share_out(runs: Runs, cards: FreeCards) -> Kept:
    """Allocate free cards to running replicas: first one per server, so that few servers stop, then the rest.

    Args:
        runs: replicas by server and accelerator, in the order of allocation.
        cards: the free cards; changed.
    """
    kept: Kept = {}
    served = set()
    for only_one in (True, False):
        for name, pools in runs.items():
            for accelerator, number in pools.items():
                if accelerator not in cards.system.accelerators or (only_one and name in served):
                    continue
                before = kept.get((name, accelerator), 0)
                given = cards.fitting(name, accelerator, min(1, number) if only_one else number - before)
                if given:
                    cards.take(name, accelerator, given)
                    kept[name, accelerator] = before + given
                    served.add(name)
    return kept
