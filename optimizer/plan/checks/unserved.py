"""Check the reasons of servers that are not fully served.

Candidates and rejections of these servers are recomputed from the system unless they are available. The
nearest accelerator follows from the remaining capacity.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from optimizer.candidates import Candidates, Rejection, find_candidates
from optimizer.candidates.arrays import rolls_out
from optimizer.candidates.power import power_of_rows
from optimizer.limits.limit import Limit, PlacedReplicas, Uses
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.reserves import without_reserves
from optimizer.plan.document import Pool, Unserved
from optimizer.plan.reasons import (
    NO_ACCELERATOR,
    NO_SHARED_CARD,
    STOPPED_UNLIMITED,
    Need,
    nearest_need,
    rejection_reason,
    shortage_reason,
)
from optimizer.plan.shared_queues import rows_of_member
from optimizer.solvers.problem import gap_target
from optimizer.spec.placed import needs_power, placed, stock_of
from optimizer.spec.shared_queues import SharedQueue, members_of
from optimizer.spec.system import System


def check_unserved(facts: Facts, candidates: Candidates | None) -> list[str]:
    """Return wrong priorities, reasons and details of unserved servers.

    Args:
        facts: the plan and its system.
        candidates: candidates of the system, if available.
    """
    if not facts.plan.unserved:
        return []
    known = _sized(facts) if candidates is None else candidates
    index = {name: s for s, name in enumerate(known.arrays.server_names)}
    for name, use in facts.plan.shared_queues.items():
        index |= dict.fromkeys([*use.members, *use.unserved], index.get(name, -1))
    problems = [
        f"{item.server}: {line}"
        for item in facts.plan.unserved
        for line in _item(facts, known, index[item.server], item)
    ]
    return problems or [*_before_reserves(facts, known, index)]


def _sized(facts: Facts) -> Candidates:
    """Size the unserved servers on every accelerator."""
    servers = {
        name: server
        for name, server in facts.whole.servers.items()
        if any(part.name in facts.listed for part in members_of(server))
    }
    return find_candidates(replace(facts.whole, servers=MappingProxyType(servers), kept=MappingProxyType({})))


def _item(facts: Facts, candidates: Candidates, s: int, item: Unserved) -> Iterator[str]:
    priority = facts.system.priority(facts.system.servers[item.server])
    if item.priority != priority:
        yield f"its priority is {priority}, the plan says {item.priority}"
    reason, detail = _reason(facts, candidates, s, item)
    if item.reason != reason:
        yield f"it is unserved for {reason}, the plan says {item.reason}"
    elif item.detail != detail:
        yield f"the reason in numbers is {detail!r}, the plan says {item.detail!r}"
    if reason == "solver_stopped" and _is_exact(facts):
        yield "there are enough cards to serve it, so the plan is not optimal"


def _is_exact(facts: Facts) -> bool:
    """Return whether the plan is called optimal, and no gap is allowed."""
    pairs = len(facts.system.servers) * len(facts.system.accelerators)
    return facts.plan.status == "optimal" and gap_target(facts.system.options, pairs) == 0


def _before_reserves(facts: Facts, candidates: Candidates, index: Mapping[str, int]) -> Iterator[str]:
    """Yield servers that cards of reserves could serve, in full or under a policy by another replica."""
    if not facts.plan.reserves or not _is_exact(facts):
        return
    lean = without_reserves(facts)
    for item in (item for item in facts.plan.unserved if item.reason == "capacity"):
        s, name = index[item.server], item.server
        if _reason(lean, candidates, s, item)[0] == "solver_stopped":
            yield f"{name}: cards of reserves could serve it in full, but load comes before reserves"
        elif _gets_another_replica(lean, candidates, s, item):
            yield f"{name}: cards of reserves could serve more of it, but load comes before reserves"


def _gets_another_replica(lean: Facts, candidates: Candidates, s: int, item: Unserved) -> bool:
    """Return whether the policy gives a server another replica in a plan without reserves.

    This is known if servers served in full can run nowhere else, so that they use the same cards in the stage
    that serves others in part.
    """
    system, server, pools = lean.whole, lean.whole.servers.get(item.server), lean.pools_of(item.server)
    tiers = any(each.tiers for each in system.accelerators.values())
    if server is None or not lean.shares_leftover or lean.rented or tiers or rolls_out(system, server):
        return False
    in_full = (name for name, mine in lean.plan.allocations.items() if mine and name not in lean.listed)
    most = server.max_num_replicas
    full = most is not None and sum(pool.num_replicas for pool in pools) >= most
    if full or any(_can_move(system, name) for name in in_full):
        return False
    table, others = candidates.table, _Others(lean, ())
    power_w = power_of_rows(candidates, table) if needs_power(system) else np.zeros(len(table))
    here = {pool.accelerator for pool in pools} if pools and not lean.mixed else system.accelerators.keys()
    for c in np.flatnonzero((table.server == s) & table.meets_targets_below_max_rate).tolist():
        accelerator = candidates.arrays.accelerator_names[table.accelerator[c]]
        needs = others.needs(item.server, accelerator, 1, float(power_w[c]))
        if accelerator in here and all(need.missing <= 0 for need in needs):
            return True
    return False


def _can_move(system: System, name: str) -> bool:
    """Return whether a server may run on several accelerators, or its queue serve others in part."""
    server = system.servers[name]
    allowed = [
        accelerator
        for model, accelerator in system.profiles
        if model == server.model and (server.accelerators is None or accelerator in server.accelerators)
    ]
    return isinstance(server, SharedQueue) or len(allowed) > 1


def _reason(facts: Facts, candidates: Candidates, s: int, item: Unserved) -> tuple[str, str]:
    table, name = candidates.table, item.server
    mine = [int(c) for c in np.flatnonzero(table.server == s)]
    own: tuple[tuple[str, Pool], ...] = ()
    if mine and name in facts.plan.queued_servers:
        name = candidates.arrays.server_names[s]
        members, use = facts.whole.servers[name], facts.plan.shared_queues[name]
        place = {part.name: i for i, part in enumerate(members_of(members))}
        together = [other for other in use.members if other != item.server]
        rows, reason = rows_of_member(table, s, place, item.server, together)
        if not len(rows):
            return reason
        mine, own = rows.tolist(), tuple((name, pool) for pool in facts.pools_of(name))
    if mine and not facts.is_limited:
        return STOPPED_UNLIMITED
    if mine:
        power_w = power_of_rows(candidates, table) if needs_power(facts.whole) else np.zeros(len(table))
        accelerators = candidates.arrays.accelerator_names
        others = _Others(facts, own)
        options = [
            others.needs(
                name, accelerators[table.accelerator[c]], int(table.num_replicas[c]), float(power_w[c])
            )
            for c in mine
        ]
        # Only a plan around running replicas can exclude a server.
        excluded = item.reason == "blocked" and any(kept.server == name for kept in facts.plan.kept)
        for_least = facts.load_rpm[item.server] == 0 or item.served_fraction == 1
        return shortage_reason(
            nearest_need(options),
            stock_of(facts.whole, facts.arrays.type_names),
            for_least=for_least,
            excluded=excluded,
        )
    if candidates.shared is not None and s in candidates.shared.servers:
        return NO_SHARED_CARD
    rejected = list(candidates.rejections(s))
    return _nearest(rejected) if rejected else NO_ACCELERATOR


@dataclass(frozen=True)
class _Others:
    """The rest of a plan without the pools of one server, which could get other replicas."""

    facts: Facts
    own: Sequence[tuple[str, Pool]]

    @cached_property
    def _freed(self) -> list[PlacedReplicas]:
        names = {name for name, _ in self.own}
        return [item for item in self.facts.placed.items if item.server in names]

    @cached_property
    def left(self) -> dict[Limit, dict[str, float]]:
        """Remaining amount of each item, by limit."""
        return {limit: self._left(limit, amounts) for limit, amounts in self.facts.placed.amounts.items()}

    def _left(self, limit: Limit, amounts: Mapping[str, float]) -> dict[str, float]:
        kept, used, freed = self.facts.kept_use[limit], self.facts.placed.used[limit], limit.used(self._freed)
        if not limit.is_sum:
            used, freed = limit.used(self._items), {}
        return {
            item: max(amount - kept.get(item, 0.0), 0.0) - used.get(item, 0.0) + freed.get(item, 0.0)
            for item, amount in amounts.items()
        }

    @cached_property
    def _items(self) -> list[PlacedReplicas]:
        names = {name for name, _ in self.own}
        return [item for item in self.facts.placed.items if item.server not in names]

    @cached_property
    def _adding(self) -> dict[Limit, Callable[[Iterable[PlacedReplicas]], Uses]]:
        return {limit: limit.adding_to(self._items) for limit in self.facts.placed.amounts}

    def needs(self, server: str, accelerator: str, replicas: int, power_w: float) -> list[Need]:
        """Return the needs of replicas, in the order of the limits."""
        here, needs = [placed(self.facts.whole, server, accelerator, replicas, power_w)], []
        for limit, amounts in self.facts.placed.amounts.items():
            needed = self._adding[limit](here)
            for item, amount in amounts.items():
                if needed.get(item, 0.0):
                    left = self.left[limit][item]
                    needs.append(Need(accelerator, replicas, limit, item, needed[item], left, amount))
        return needs


def _nearest(rejected: list[Rejection]) -> tuple[str, str]:
    """Return the reason of the rejection with the smallest factor; rejections without numbers come last."""
    labels = {item.reason for item in rejected}
    if len(labels) > 1:
        labels.discard("not_allowed")
    measured = [item for item in rejected if item.value is not None and item.limit]
    allowed = [item for item in rejected if item.reason != "not_allowed"]
    nearest = min(measured, key=_factor) if measured else (allowed or rejected)[0]
    return rejection_reason(nearest, labels, len(rejected))


def _factor(item: Rejection) -> float:
    ratio = (item.value or 0.0) / (item.limit or 1.0)
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf
