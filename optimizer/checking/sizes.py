"""Warns about the loads and targets of servers; for this, each server is sized on every accelerator."""

from collections.abc import Collection, Iterator

import numpy as np

from optimizer.candidates import Candidates, SizingMemo
from optimizer.checking.steep import SteepTarget, steep_targets
from optimizer.documents import UnitlessNumber
from optimizer.features.disaggregation.streams import RolePool
from optimizer.money import cost_text
from optimizer.plan.shortages import nearest_miss
from optimizer.quantities import counted, precise, share_text
from optimizer.schema import Server
from optimizer.schema.names import Entry, Finding, Index
from optimizer.spec.streams import members_of, owner_of, planned_name

IDLE_SHARE = 0.1
"""Utilisation of one replica below which a rate without a unit is probably meant per second, not per minute.
"""
STEEP = "steep_target"
"""Code of the warning about a server whose cost explodes near the limit of a target."""


def sized_warnings(
    candidates: Candidates, index: Index, pools: Collection[tuple[str, str]], memo: SizingMemo | None
) -> Iterator[Finding]:
    """Yield warnings about the loads and targets of servers.

    Args:
        candidates: sized pairs of servers and accelerators.
        index: the items of the documents.
        pools: planned server and accelerator of each pool of a plan.
        memo: cache of sizings.
    """
    yield from _unservable(candidates, index)
    yield from _low_loads(candidates, index)
    for target in steep_targets(candidates, pools, memo):
        _, (part, at, _) = _planned(candidates, index, target.server)
        yield Finding(part, at, steep_text(target, candidates.system.currency), code=STEEP)


def steep_text(target: SteepTarget, currency: str | None) -> str:
    """Return the warning about a steep target."""
    now, then = (n * target.cost_per_replica for n in (target.replicas, target.looser_replicas))
    replicas = counted(target.replicas, "replica")
    less = (
        f"{counted(target.looser_replicas, 'replica')} would do, for {cost_text(then, currency)} instead of "
        f"{cost_text(now, currency)}"
    )
    if target.target:
        share = share_text(target.idle_share)
        why = (
            f"because an idle one already takes {share} of the target {target.target} {target.limit}; with "
            f"{target.looser_limit} {less}"
        )
    else:
        why = f"because its latency targets are close to those of an idle one; if they are 5% looser, {less}"
    return (
        f"it needs {replicas} of {target.accelerator}, {why}. So close to a limit, the sizing can be several "
        "times too cautious; simulate it before you buy"
    )


def _unservable(candidates: Candidates, index: Index) -> Iterator[Finding]:
    """Yield a warning for each server with load that no accelerator can serve, with the nearest miss."""
    served = np.unique(candidates.table.server)
    needed = (candidates.arrays.servers.load_rps > 0) | (candidates.arrays.servers.min_replicas > 0)
    for s in np.setdiff1d(np.flatnonzero(needed), served):
        planned, (part, at, _) = _planned(candidates, index, int(s))
        if isinstance(planned, RolePool):
            continue  # replicas that do both, or other pools, can serve it
        what = f"its version {planned.model!r}" if owner_of(planned) != planned.name else "it"
        reason, detail = nearest_miss(candidates, int(s))
        yield Finding(part, at, f"no accelerator can serve {what} ({reason}): {detail}")


def _planned(candidates: Candidates, index: Index, s: int) -> tuple[Server, Entry]:
    """Return the planned server at index `s` and its entry in the documents.

    The entry of a shared queue is that of its first member.
    """
    system = candidates.system
    planned = system.servers[candidates.arrays.server_names[s]]
    return planned, index.servers[system.streams[members_of(planned)[0].name].owner]


def _low_loads(candidates: Candidates, index: Index) -> Iterator[Finding]:
    """Yield warnings about loads without a unit that are probably per second.

    Per minute, they would leave a replica idle.
    """
    table, servers = candidates.table, candidates.arrays.servers
    share = np.zeros(len(servers.load_rps))
    np.maximum.at(share, table.server, table.load_rps / table.max_rate_rps)
    for s in np.flatnonzero((share > 0) & (share < IDLE_SHARE)):
        planned, (part, at, server) = _planned(candidates, index, int(s))
        if owner_of(planned) != planned.name:
            share[s] *= server.current.load.arrival_rate_rpm / planned.current.load.arrival_rate_rpm
            if planned.name != planned_name(server) or share[s] >= IDLE_SHARE:
                continue
        rate, place = server.current.load.arrival_rate_rpm, (*at, "currentAlloc", "load", "arrivalRate")
        if rate and isinstance(rate, UnitlessNumber):
            number = precise(rate)
            text = (
                f"{number} requests/min take at most {share[s]:.1%} of one replica; write {number}/s if the "
                f"rate is per second, or {number}/min"
            )
            yield Finding(part, place, text)
