"""Finds the reasons why servers are not fully served."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates, CandidateTable, Rejection
from optimizer.candidates.replica_power import power_of_rows
from optimizer.limits.limit import Limit
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
from optimizer.plan.views import PlanPlacements, used_by
from optimizer.prices.table import prices_of
from optimizer.schema import Server
from optimizer.solvers.problem import topologies_of
from optimizer.spec.placed import PlacedUnits, kept_replicas, needs_power, placed, stock_of
from optimizer.spec.streams import members_of


@dataclass(frozen=True)
class Shortages:
    """Finds the reasons why a plan does not serve servers in full."""

    candidates: Candidates
    """Candidates and rejections of the servers that are not served in full."""
    placed: PlanPlacements
    """Placements of the plan."""
    excluded: Collection[str]
    """Names of planned servers that are running and cannot be moved without stopping."""

    def of_server(self, name: str, fraction: float) -> Unserved:
        """Return a planned server that is not fully served with its reason: a limit, or rejections.

        Args:
            name: name of the server.
            fraction: served fraction of the server.
        """
        candidates, s = self.candidates, self.candidates.arrays.server_names.index(name)
        rows = np.flatnonzero(candidates.table.server == s)
        if len(rows):
            for_least = bool(candidates.arrays.servers.load_rps[s] == 0) or fraction == 1
            reason = self._shortage(name, rows, [], for_least=for_least)
        elif candidates.shared is not None and s in candidates.shared.servers:
            reason = NO_SHARED_CARD
        else:
            reason = nearest_miss(candidates, s)
        return self._unserved(self.placed.system.servers[name], fraction, reason)

    def of_member(self, queue: str, member: str, together: Sequence[str], fraction: float) -> Unserved:
        """Return a member of a queue that is not fully served, with the reason.

        Args:
            together: the members that are served.
            fraction: served fraction of the member.
        """
        candidates, s = self.candidates, self.candidates.arrays.server_names.index(queue)
        parts = members_of(self.placed.system.servers[queue])
        place = {part.name: i for i, part in enumerate(parts)}
        part, others = parts[place[member]], [other for other in together if other != member]
        rows, reason = rows_of_member(candidates.table, s, place, member, others)
        if len(rows):
            for_least = not part.current.load.arrival_rate_rpm
            reason = self._shortage(queue, rows, [queue], for_least=for_least)
        elif not (candidates.table.server == s).any():
            reason = nearest_miss(candidates, s)
        return self._unserved(part, fraction, reason)

    def _unserved(self, server: Server, fraction: float, reason: tuple[str, str]) -> Unserved:
        return Unserved(
            server=server.name,
            service_class=server.service_class,
            model=server.model,
            priority=self.placed.system.priority(server),
            reason=reason[0],
            detail=reason[1],
            served_fraction=fraction,
        )

    def _shortage(self, name: str, rows: IntArray, own: Sequence[str], *, for_least: bool) -> tuple[str, str]:
        """Return reason code and detail for the candidate of a server that exceeds limits by the least.

        Args:
            name: the server.
            rows: indices of its candidates.
            own: name of the server if the candidates replace its current replicas; else empty.
            for_least: whether the replicas are for the server's minimum instead of its load.
        """
        system = self.placed.system
        if not any(self.placed.amounts.values()):
            return self._coupled(name) or STOPPED_UNLIMITED
        needs = self.needs(name, rows, self.candidates.table.num_replicas[rows].tolist(), own)
        if not all(needs):  # a candidate uses no limited item
            return self._coupled(name) or STOPPED_UNLIMITED
        # The candidate that lacks least names the limit to raise.
        need = nearest_need(needs)
        coupled = self._coupled(name) if need.missing <= 0 else None
        excluded = name in self.excluded and any(name == kept for kept, _ in system.kept)
        return coupled or shortage_reason(need, stock_of(system), for_least=for_least, excluded=excluded)

    def _coupled(self, name: str) -> tuple[str, str] | None:
        """Return reason code and detail if a topology needs more than the server's replicas; else None."""
        for topology in topologies_of(self.placed.system):
            if name in topology.partnered(self.placed.system):
                return "capacity", topology.shortage
        return None

    def needs(self, name: str, rows: IntArray, counts: Sequence[int], own: Sequence[str]) -> list[list[Need]]:
        """Return the needs of each of a server's candidates, in the order of the limits.

        Args:
            name: the server.
            rows: indices of its candidates.
            counts: number of replicas of each candidate.
            own: name of the server if the candidates replace its current replicas; else empty.
        """
        names, plan = self.candidates.arrays.accelerator_names, self.placed.units
        accelerators = [names[a] for a in self.candidates.table.accelerator[rows].tolist()]
        places = zip(accelerators, counts, rows.tolist(), strict=True)
        # The server's own replicas make room for its candidates.
        held, others = plan.only(own), plan.without(own)
        alone = [placed(plan.system, name, a, n, self._power_w[c]) for a, n, c in places]
        units = self._priced_beside(PlacedUnits(plan.system, alone), others)
        options: list[list[Need]] = [[] for _ in counts]
        for limit, amounts in self.placed.amounts.items():
            for item, amount in amounts.items():
                used = plan.used(limit, item) if limit.is_sum else others.used(limit, item)
                freed = held.used(limit, item) if limit.is_sum else 0.0
                left = max(amount - self._kept.used(limit, item), 0.0) - used + freed
                added = _added(limit, item, units, others)
                for one, needs, more in zip(units.items, options, added, strict=True):
                    if more:
                        needs.append(Need(one.accelerator, one.replicas, limit, item, more, left, amount))
        return options

    def _priced_beside(self, units: PlacedUnits, others: PlacedUnits) -> PlacedUnits:
        """Return each of several placements with its cost at the prices beside others."""
        added = np.zeros(len(units.items))
        for price in prices_of(self.placed.system) if units.items else ():
            used = used_by(price, others + self._kept)
            uses = price.use_of(units.replicas) * units.count[:, None]
            added += [price.added_cost(used, use) for use in uses]
        items = zip(units.items, added.tolist(), strict=True)
        priced = [
            one._replace(cost=one.cost + more / one.replicas) if one.replicas else one for one, more in items
        ]
        return PlacedUnits(units.system, priced)

    @cached_property
    def _kept(self) -> PlacedUnits:
        return kept_replicas(self.placed.system)

    @cached_property
    def _power_w(self) -> list[float]:
        """Power of one replica of each candidate at its maximum rate [W]; 0 if no limit needs it."""
        if not needs_power(self.placed.system):
            return [0.0] * len(self.candidates.table)
        return [*power_of_rows(self.candidates, self.candidates.table).tolist()]


def _added(limit: Limit, item: str, units: PlacedUnits, others: PlacedUnits) -> Iterator[float]:
    """Yield, for each of `units`, the amount of an item that it uses in addition to `others`."""
    if limit.is_sum:
        yield from (limit.use(units.replicas, item) * units.count).tolist()
        return
    before = others.used(limit, item)
    for one in units.items:
        yield (others + PlacedUnits(units.system, [one])).used(limit, item) - before


def rows_of_member(
    table: CandidateTable, s: int, place: Mapping[str, int], member: str, together: Sequence[str]
) -> tuple[IntArray, tuple[str, str]]:
    """Return the candidates of a queue that serve a member together with others, and the reason otherwise.

    Args:
        s: index of the queue.
        place: position of each member in the queue.
        member: a member that is not served.
        together: names of the members that are served.
    """
    bits = sum(1 << place[other] for other in (member, *together))
    rows = np.flatnonzero((table.server == s) & (table.members & bits == bits))
    alone = bool(((table.server == s) & (table.members >> place[member] & 1 > 0)).any())
    others = f" together with those of {', '.join(sorted(together))}" if together and alone else ""
    return rows, ("slo_unattainable", f"no accelerator meets its targets in the shared queue{others}")


def nearest_miss(candidates: Candidates, s: int) -> tuple[str, str]:
    """Return reason code and detail of the rejection with the smallest factor."""
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
