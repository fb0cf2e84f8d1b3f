"""Finds servers whose cost explodes near the limit of a target.

If one idle replica already takes almost all of a latency target, a replica can serve almost no load, and the
number of replicas grows without bound as the target approaches the latency without load. A target that is a
few percent looser then costs a small part. Low utilisation alone does not show this, because a small load
also causes it. So each server in question is sized once more with looser targets.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable, SizingMemo
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.measuring import measure_pairs, stable_rates_of
from optimizer.candidates.pairs import Pairs, chunks
from optimizer.candidates.sized import loaded_candidates
from optimizer.candidates.table import Verdicts
from optimizer.queueing.measures import LATENCIES
from optimizer.queueing.targets import Targets, target_ratio
from optimizer.tolerances import ROUNDING

LOOSER = 1.05
"""Factor on latency limits for the second sizing."""
STEEP = 5.0
"""Ratio of replicas, at the targets and at looser ones, above which a target is steep."""
IDLE = 1e-6
"""Share of the maximum rate at which a replica counts as idle."""


@dataclass(frozen=True, slots=True)
class SteepTarget:
    """A server that needs several times the replicas that a slightly looser target needs."""

    server: int
    """Index of the planned server."""
    accelerator: str
    replicas: int
    """Number of replicas that the load needs at the targets."""
    looser_replicas: int
    """Number of replicas that it needs if the target, or all targets, are looser by the factor `LOOSER`."""
    cost_per_replica: float
    """Cost of one replica [cents/h]."""
    target: str
    """Statistic and metric of the target; empty if only several looser targets together help."""
    limit: str
    """Limit of the target with its unit; empty without a single target."""
    looser_limit: str
    """Limit of the target for the second sizing; empty without a single target."""
    idle_share: float
    """Value of the target's metric at an idle replica, divided by the limit."""


def steep_targets(
    candidates: Candidates, pools: Collection[tuple[str, str]] = (), memo: SizingMemo | None = None
) -> list[SteepTarget]:
    """Return the servers with steep targets, judged by their cheapest candidate and by their pools in a plan.

    Args:
        candidates: candidates of a system.
        pools: planned server and accelerator of each pool of a plan.
        memo: cache of sizings.
    """
    arrays = candidates.arrays
    table, needed = _in_question(candidates, pools)
    if not len(table):
        return []
    again = _replicas(candidates, _with_looser(arrays), table, memo)
    steep = needed > STEEP * again
    table, needed, again = table.take(steep), needed[steep], again[steep]
    if not len(table):
        return []
    binding, idle = _binding(arrays, table)
    one = np.zeros(arrays.servers.targets.limits.shape, np.bool_)
    one[binding, table.server] = True
    alone = _replicas(candidates, _with_looser(arrays, one), table, memo)
    targets = dict[int, SteepTarget]()
    for i, s in enumerate(table.server.tolist()):
        measure, is_one = arrays.servers.targets.measures[binding[i]], needed[i] > STEEP * alone[i]
        limit = float(arrays.servers.targets.limits[binding[i], s])
        targets.setdefault(s, SteepTarget(
            server=s,
            accelerator=arrays.accelerator_names[table.accelerator[i]],
            replicas=int(needed[i]),
            looser_replicas=int(alone[i] if is_one else again[i]),
            cost_per_replica=float(table.cost_per_replica[i]),
            target=measure.label if is_one else "",
            limit=measure.text(limit) if is_one else "",
            looser_limit=measure.text(limit * LOOSER) if is_one else "",
            idle_share=float(idle[i]),
        ))  # fmt: skip
    return list(targets.values())


def _in_question(
    candidates: Candidates, pools: Collection[tuple[str, str]]
) -> tuple[CandidateTable, FloatArray]:
    """Return the candidates to size again, and the number of replicas that each needs.

    They are the pools of a plan, then the cheapest candidate of each server for which enough cards exist, or
    else the cheapest of all; only those are returned that need more than `STEEP` replicas.
    """
    arrays, over = candidates.arrays, candidates.over_limit
    table = CandidateTable.joined([candidates.table, over])
    order = CandidateTable.joined_order([candidates.table, over])
    over_needed = candidates.verdicts.value[over.server, over.accelerator]
    needed = np.concatenate([candidates.table.num_replicas, over_needed])[order]
    cost = needed * table.cost_per_replica
    whole = table.load_rps >= arrays.servers.load_rps[table.server] * (1 - ROUNDING)
    names = np.array([
        (arrays.server_names[s], arrays.accelerator_names[a]) in pools for s, a in table.pairs()
    ], np.bool_)  # fmt: skip
    limits = [candidates.system.card_limit(name) for name in arrays.type_names]
    exist = np.array([np.inf if limit is None else limit for limit in limits])
    lacks = needed * table.units_per_replica > exist[table.type]
    by_cost = np.lexsort((needed, cost, lacks, table.server))
    by_cost = by_cost[whole[by_cost]]
    first = by_cost[np.unique(table.server[by_cost], return_index=True)[1]]
    rows = np.concatenate([np.flatnonzero(names & whole), first]).astype(np.int64)
    rows = rows[needed[rows] > STEEP]
    rows = rows[_can_carry_more(arrays, table.take(rows))]
    return table.take(rows), needed[rows]


def _can_carry_more(arrays: SystemArrays, table: CandidateTable) -> BoolArray:
    """Return a mask of the candidates whose replicas are stable at several times their maximum rate.

    Looser targets can reduce the replicas of no other candidate by the factor `STEEP`. The number of replicas
    is rounded up, so the rate can be smaller than the ratio of replicas by one replica in `STEEP`.
    """
    if not len(table):
        return np.zeros(0, np.bool_)
    pairs = Pairs.of(arrays, table.server, table.accelerator, table.batch_ceiling)
    least = table.max_rate_rps * STEEP / (1 + 1 / STEEP)
    return np.asarray(stable_rates_of(arrays, pairs) >= least, np.bool_)


def _with_looser(arrays: SystemArrays, chosen: BoolArray | None = None) -> SystemArrays:
    """Return a copy with looser latency targets.

    Args:
        chosen: mask of the servers' targets that become looser, shape (K, S); None for all.
    """
    servers, members = arrays.servers, arrays.servers.members
    targets, of_members = _looser(servers.targets, chosen), _looser(members.targets)
    looser = replace(servers, targets=targets, members=replace(members, targets=of_members))
    return replace(arrays, servers=looser)


def _looser(targets: Targets, chosen: BoolArray | None = None) -> Targets:
    factor = np.array([LOOSER if measure.metric in LATENCIES else 1.0 for measure in targets.measures])
    factors = np.broadcast_to(factor[:, None], targets.limits.shape)
    per_request = targets.per_request
    if chosen is not None:
        factors = np.where(chosen, factors, 1.0)
    if per_request is not None:
        each = [measure.is_missed for measure in targets.measures]
        is_looser = np.ones(per_request.shape[1], np.bool_) if chosen is None else chosen[each].any(axis=0)
        per_request = per_request * np.where(is_looser, LOOSER, 1.0)
    return replace(targets, limits=targets.limits * factors, per_request=per_request)


def _replicas(
    candidates: Candidates, arrays: SystemArrays, table: CandidateTable, memo: SizingMemo | None
) -> FloatArray:
    """Return the number of replicas that each of R candidates needs at the targets in `arrays`, shape (R,).

    Infinity if they cannot meet the targets.
    """
    optimal = candidates.system.options.batch_sizing == "optimal"
    pairs = Pairs.of_rows(arrays, table)
    needed = np.full(len(table), np.inf)
    for rows in _kinds(arrays, table, pairs):
        some = pairs.take(rows)
        if optimal and not arrays.servers.is_queue[some.server[0]]:
            some = with_best_batches(arrays, replace(some, batch_ceiling=table.batch_ceiling[rows]))
        verdicts = Verdicts.none(candidates.verdicts.reason.shape)
        sized = loaded_candidates(arrays, some, verdicts, memo)
        at = dict(zip(sized.pairs(), sized.num_replicas.tolist(), strict=True))
        needed[rows] = [at.get(pair, np.inf) for pair in table.take(rows).pairs()]
    return needed


def _kinds(arrays: SystemArrays, table: CandidateTable, pairs: Pairs) -> Iterator[IntArray]:
    """Yield the rows of candidates that can be sized together."""
    is_queue = arrays.servers.is_queue[table.server]
    for mask in (is_queue, ~is_queue):
        yield from chunks(arrays, pairs, np.flatnonzero(mask))


def _binding(arrays: SystemArrays, table: CandidateTable) -> tuple[IntArray, FloatArray]:
    """Return the index of the target that limits each candidate's rate, and its share at an idle replica."""
    pairs, limits = Pairs.of_rows(arrays, table), arrays.servers.targets.limits[:, table.server]
    full = target_ratio(measure_pairs(arrays, pairs, table.max_rate_rps).targets, limits)
    idle = target_ratio(measure_pairs(arrays, pairs, table.max_rate_rps * IDLE).targets, limits)
    binding = full.argmax(axis=0)
    return binding, idle[binding, np.arange(len(table))]
