"""Candidates of shared queues: each subset of a queue's loaded servers, on each accelerator.

A subset is sized as a separate queue with its own mix, batch and memory limits, and classes. Its candidates
then become candidates of the queue that record which members they serve. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import IntArray, frozen
from optimizer.candidates.arrays import ALL_MEMBERS, SystemArrays, tabulate
from optimizer.candidates.memo import SizingMemo
from optimizer.candidates.pairs import Pairs, chunks, sizable_pairs
from optimizer.candidates.rows import no_rows
from optimizer.candidates.sized import loaded_candidates
from optimizer.candidates.table import CandidateTable, RejectionReason, Verdicts
from optimizer.features.reserves.offers import with_reserve
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.queueing.targets import DELAYED
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Subsets:
    """The V subsets of the loaded members of all shared queues, each treated as a separate queue."""

    arrays: SystemArrays
    """A system in which each subset is a server."""
    queue: IntArray
    """Index of each subset's queue in the planned system, shape (V,)."""
    members: IntArray
    """Bit mask of the members in each subset, shape (V,)."""

    @classmethod
    def of(cls, system: System, arrays: SystemArrays) -> "Subsets":
        """Create all subsets of a system's queues that have load."""
        servers: list[SharedQueue] = []
        queue, members = [], []
        for s in np.flatnonzero(arrays.servers.is_queue).tolist():
            server = system.servers[arrays.server_names[s]]
            assert isinstance(server, SharedQueue)
            for bits, part in _subsets(arrays, s, server):
                servers.append(part)
                queue.append(s)
                members.append(bits)
        names = [f"{i:06d}" for i in range(len(servers))]
        factors = {
            (name, accelerator): factor
            for name, server in zip(names, servers, strict=True)
            for (owner, accelerator), factor in system.rate_factors.items()
            if owner == server.name
        }
        alone = replace(
            system,
            servers=MappingProxyType(dict(zip(names, servers, strict=True))),
            rate_factors=MappingProxyType(factors),
        )
        return cls(tabulate(alone), np.array(queue, np.int64), np.array(members, np.int64))

    def servers_of(self, table: CandidateTable) -> IntArray:
        """Return the index of each candidate's subset, shape (C,); 0 if its server is not a shared queue."""
        keys = zip(self.queue.tolist(), self.members.tolist(), strict=True)
        place = {key: i for i, key in enumerate(keys)}
        rows = zip(table.server.tolist(), table.members.tolist(), strict=True)
        return np.array([place.get(key, 0) for key in rows], np.int64)

    def in_queues(self, table: CandidateTable) -> CandidateTable:
        """Convert candidates of subsets to candidates of their queues."""
        return replace(
            table, server=frozen(self.queue[table.server]), members=frozen(self.members[table.server])
        )


def _subsets(arrays: SystemArrays, s: int, server: SharedQueue) -> Iterator[tuple[int, SharedQueue]]:
    """Yield the subsets of a queue's loaded members, the full set first; all contain the idle members."""
    members = arrays.servers.members
    of_queue = np.flatnonzero(members.server == s)
    rates = dict(
        zip([part.name for part in server.members], members.load_rps[of_queue].tolist(), strict=True)
    )
    loaded = [place for place, rate in enumerate(rates.values()) if rate > 0]
    idle = sum(1 << place for place, rate in enumerate(rates.values()) if not rate)
    names = list(rates)
    for chosen in range((1 << len(loaded)) - 1, 0, -1):
        places = [place for i, place in enumerate(loaded) if chosen >> i & 1]
        bits = idle + sum(1 << place for place in places)
        part = server.only({names[place]: rates[names[place]] * SECONDS_PER_MINUTE for place in places})
        yield ALL_MEMBERS if len(places) == len(loaded) else bits, part


def queue_candidates(
    system: System, arrays: SystemArrays, verdicts: Verdicts, memo: SizingMemo | None
) -> tuple[CandidateTable, CandidateTable]:
    """Size the shared queues of a system; reject accelerators on which no subset of a queue can be served.

    Args:
        arrays: the same system as arrays.
        verdicts: receives the rejected queue–accelerator pairs with their reasons.
        memo: cache of sizings.

    Returns:
        Candidates within the limits on replicas, and additional ones with the reserve.
    """
    subsets = Subsets.of(system, arrays)
    of_subsets = Verdicts.none(subsets.arrays.profile_of.shape)
    pairs = _near(subsets.arrays, sizable_pairs(subsets.arrays, of_subsets, choose_batch=False), of_subsets)
    rows = chunks(subsets.arrays, pairs, np.arange(len(pairs.server)))
    tables = [loaded_candidates(subsets.arrays, pairs.take(part), of_subsets, memo) for part in rows]
    table = CandidateTable.joined([no_rows(subsets.arrays, pairs), *tables])
    over = table.num_replicas > subsets.arrays.servers.max_replicas[table.server]
    within, more = with_reserve(subsets.arrays, table.take(~over))
    _reject_queues(subsets, of_subsets, verdicts)
    return subsets.in_queues(within), subsets.in_queues(more)


def _reject_queues(subsets: Subsets, of_subsets: Verdicts, verdicts: Verdicts) -> None:
    """Reject a queue on accelerators that reject all its subsets, with the reason of the smallest subset."""
    for s in np.unique(subsets.queue).tolist():
        own = np.flatnonzero(subsets.queue == s)
        for a in np.flatnonzero((of_subsets.reason[own] > 0).all(axis=0)).tolist():
            for each in fields(Verdicts):
                getattr(verdicts, each.name)[s, a] = getattr(of_subsets, each.name)[own[-1], a]


def _near(arrays: SystemArrays, pairs: Pairs, verdicts: Verdicts) -> Pairs:
    """Reject the pairs whose network latency reaches a target of any loaded member; return the others."""
    members = arrays.servers.members
    loaded = members.load_rps > 0
    least_ms = np.full(len(arrays.server_names), np.inf)
    for metric in DELAYED:
        np.minimum.at(least_ms, members.server[loaded], members.targets.limit(metric)[loaded])
    time_ms, limit_ms = arrays.servers.delay_ms[pairs.server, pairs.accelerator], least_ms[pairs.server]
    far = (time_ms > 0) & (time_ms >= limit_ms)
    verdicts.reject(pairs.server, pairs.accelerator, RejectionReason.network, time_ms, limit_ms, where=far)
    return pairs.take(~far)
