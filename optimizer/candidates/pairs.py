"""Server–accelerator pairs before sizing, and their queue models."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray, IntArray, RowArrays, frozen, same_rows
from optimizer.candidates.arrays import OwnTable, SystemArrays, tabulate
from optimizer.candidates.table import CandidateTable, RejectionReason, Verdicts
from optimizer.documents import MAX_BATCH_LIMIT
from optimizer.kinds.queue_models import QUEUE_MODELS
from optimizer.kinds.table import kind_of_law, kind_of_profile
from optimizer.parallel import in_threads
from optimizer.queueing.performance import (
    QUEUE_TO_BATCH_RATIO,
    VARIABILITY,
    OwnArrays,
    QueueModel,
    ReplicaLimits,
    Variability,
)
from optimizer.queueing.priority.model import UNLIMITED_QUEUE
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import DELAYED, Targets
from optimizer.spec.system import System
from optimizer.timing.law import Law, RequestShapes
from optimizer.tolerances import SAME


@dataclass(frozen=True, slots=True)
class Pairs(RowArrays):
    """Server–accelerator pairs with batch limits, as arrays of shape (R,)."""

    server: IntArray
    accelerator: IntArray
    profile: IntArray
    max_batch: IntArray
    max_queue: IntArray
    batch_ceiling: IntArray
    best_rate_rps: FloatArray
    """Highest rate over all batch limits up to the ceiling [requests/s]; NaN unless batch limits are
    optimised.
    """

    @classmethod
    def of(
        cls, arrays: SystemArrays, server: IntArray, accelerator: IntArray, max_batch: IntArray
    ) -> "Pairs":
        """Create pairs with fixed batch limits, which are then also the batch ceilings; all shapes (R,)."""
        profile, capacity = arrays.profile_of[server, accelerator], queue_capacity(arrays, server, max_batch)
        return cls(server, accelerator, profile, max_batch, capacity, max_batch, np.full(len(server), np.nan))

    @classmethod
    def of_rows(cls, arrays: SystemArrays, table: CandidateTable) -> "Pairs":
        """Return the pairs of candidates."""
        return cls.of(arrays, table.server, table.accelerator, table.max_batch)


def sizable_pairs(arrays: SystemArrays, verdicts: Verdicts, *, choose_batch: bool) -> Pairs:
    """Reject the pairs that cannot serve at any rate; return the others with batch limit and queue capacity.

    Args:
        verdicts: receives the rejected pairs with their reasons.
        choose_batch: whether batch limits are optimised.
    """
    servers, profiles = arrays.servers, arrays.profiles
    timed = np.zeros(arrays.profile_of.shape, np.bool_)
    known = arrays.profile_of >= 0
    timed[known] = profiles.laws.law[arrays.profile_of[known]] >= 0
    verdicts.reason[~timed] = RejectionReason.no_profile
    for row, misfit in arrays.misfits.items():
        s, a = np.nonzero(arrays.profile_of == row)
        verdicts.reject(s, a, RejectionReason.does_not_fit, misfit.needed_gib, misfit.usable_gib)
    verdicts.reason[~servers.has_target] = RejectionReason.no_target
    _reject_places(arrays, verdicts)
    verdicts.reason[~servers.allowed] = RejectionReason.not_allowed

    # Servers without load and without a minimum number of replicas need no candidates.
    needed = (servers.load_rps > 0) | (servers.min_replicas > 0)
    server, accelerator = np.nonzero((verdicts.reason == 0) & needed[:, None])
    profile = arrays.profile_of[server, accelerator]
    batch, in_memory = _batch_and_memory(arrays, server, profile, choose_batch=choose_batch)
    loaded = servers.load_rps[server] > 0
    tokens, memory = _memory(arrays, server, profile)
    # A request of the longest shape must fit beside the prefixes that are stored once.
    too_long, too_large = (in_memory < 1) | (loaded & (tokens > memory)), batch > MAX_BATCH_LIMIT
    verdicts.reject(server, accelerator, RejectionReason.does_not_fit, tokens, memory, where=too_long)
    compared = batch, np.full(len(batch), float(MAX_BATCH_LIMIT))
    verdicts.reject(server, accelerator, RejectionReason.batch_limit, *compared, where=too_large)
    fits = ~too_long & ~too_large
    return Pairs.of(arrays, server, accelerator, np.where(fits, batch, 1).astype(np.int64)).take(fits)


def _reject_places(arrays: SystemArrays, verdicts: Verdicts) -> None:
    """Reject pairs whose accelerator is in a disallowed place, or whose network latency reaches a target.

    Shared queues are checked later, with the targets of their members.
    """
    servers = arrays.servers
    # The network latency alone can exceed a target, whatever the replicas do.
    s, a = np.nonzero(np.where(servers.is_queue[:, None], 0.0, servers.delay_ms))
    time_ms = servers.delay_ms[s, a]
    limit_ms = np.minimum(*(servers.targets.limit(metric)[s] for metric in sorted(DELAYED)))
    verdicts.reject(s, a, RejectionReason.network, time_ms, limit_ms, where=time_ms >= limit_ms)
    s, a = np.nonzero(~servers.may_serve)
    verdicts.reject(s, a, RejectionReason.place)


def queue_capacity(arrays: SystemArrays, server: IntArray, max_batch: IntArray) -> IntArray:
    """Return the queue capacity of each pair: the maximum number of requests that wait for a full batch.

    Args:
        server: indices of the servers, shape (R,).
        max_batch: batch limits, shape (R,).
    """
    own = arrays.servers.max_queue[server]
    capacity = np.where(own >= 0, own, QUEUE_TO_BATCH_RATIO * max_batch)
    return np.where(arrays.servers.is_queue[server], UNLIMITED_QUEUE, capacity)


def _memory(arrays: SystemArrays, server: IntArray, profile: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the tokens of a request of the longest shape of each pair, and the free KV cache [tokens]."""
    return arrays.servers.longest_tokens[server], free_tokens(arrays, server, profile)


def free_tokens(arrays: SystemArrays, server: IntArray, profile: IntArray) -> FloatArray:
    """Return the KV cache of each pair without the prefixes that are stored once [tokens], shape (R,)."""
    capacity, shapes = arrays.profiles.kv_capacity_tokens[profile], arrays.servers.shapes
    return capacity if shapes is None else np.maximum(capacity - shapes.heads[server], 0.0)


def _batch_and_memory(
    arrays: SystemArrays, server: IntArray, profile: IntArray, *, choose_batch: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the batch limit of each pair, and the number of requests that fit in its KV cache.

    The limit is that of the server, or else that of the profile, scaled to the output length (eq. 25) unless
    the server is idle. The KV cache also limits the batch. If batch limits are optimised, both results are
    upper limits.
    """
    batch = batch_limit(arrays, server, profile, choose_batch=choose_batch)
    idle = arrays.servers.load_rps[server] == 0
    in_memory = np.where(idle, np.inf, requests_in_memory(arrays, server, profile))
    return np.minimum(batch, in_memory), in_memory


def batch_limit(
    arrays: SystemArrays, server: IntArray, profile: IntArray, *, choose_batch: bool
) -> FloatArray:
    """Return the batch limit that the server or the profile of each pair states, regardless of memory.

    Args:
        server: indices of the servers, shape (R,).
        profile: indices of the profiles, shape (R,).
        choose_batch: whether batch limits are optimised.
    """
    servers, profiles = arrays.servers, arrays.profiles
    idle = servers.load_rps[server] == 0
    # N = N₀ O₀ / O: a batch limit that was measured at other output lengths (eq. 25).
    scaled = np.maximum(profiles.batch_tokens[profile] // np.maximum(servers.out_tokens[server], 1), 1)
    unscaled = idle | (profiles.batch_tokens[profile] == 0)
    own = servers.max_batch[server]
    of_profile = np.where(unscaled, profiles.batch_limit[profile], scaled)
    return np.where(own > 0, np.minimum(own, of_profile) if choose_batch else own, of_profile)


def requests_in_memory(arrays: SystemArrays, server: IntArray, profile: IntArray) -> FloatArray:
    """Return the number of requests that fit in the KV cache of each pair; inf if it is not stated.

    Args:
        server: indices of the servers, shape (R,).
        profile: indices of the profiles, shape (R,).
    """
    free = free_tokens(arrays, server, profile)
    return np.floor(free / np.maximum(arrays.servers.request_tokens[server], 1))


def law_of(arrays: SystemArrays, pairs: Pairs) -> Law:
    """Return the latency model of R ≥ 1 pairs, with one row for each; all must have the same type."""
    laws = arrays.profiles.laws
    return laws.of_rows(int(laws.law[pairs.profile[0]]), pairs.profile, _shapes_of(arrays, pairs))


def replicas_of(arrays: SystemArrays, pairs: Pairs) -> QueueModel:
    """Return the queue model of R ≥ 1 pairs, with one row for each; all must have the same types of models.

    Equal rows are built only once.
    """
    model = list(QUEUE_MODELS.values())[int(arrays.profiles.queue_model[pairs.profile[0]])]
    own = _own_of(arrays, pairs)
    if arrays.roles is not None and arrays.roles.has_role(pairs.server):
        own = arrays.roles.of_pairs(pairs.server, pairs.accelerator)
        return _built(arrays, pairs, arrays.roles.model_of(pairs.server), own)
    if own is not None:
        return _built(arrays, pairs, model, own)
    variability = _variability_of(arrays, pairs)
    requests = [getattr(_shapes_of(arrays, pairs), field.name) for field in fields(RequestShapes)]
    requests += [getattr(variability, name) for name in VARIABILITY]
    requests += [] if variability.shapes is None else variability.shapes.columns()
    # Pairs of many servers can share a queue model; equal rows are built and evaluated once.
    first, which = same_rows([pairs.profile, pairs.max_batch, pairs.max_queue, *requests])
    if len(first) == len(which):
        return _built(arrays, pairs, model)
    return _built(arrays, pairs.take(first), model).take(which)


def _built(
    arrays: SystemArrays, pairs: Pairs, model: type[QueueModel], own: OwnArrays | None = None
) -> QueueModel:
    kv_tokens = arrays.profiles.kv_capacity_tokens[pairs.profile]
    limits = ReplicaLimits(pairs.max_batch, pairs.max_queue, kv_tokens, own)
    return model.of_law(law_of(arrays, pairs), limits, _variability_of(arrays, pairs))


def _shapes_of(arrays: SystemArrays, pairs: Pairs) -> RequestShapes:
    servers = arrays.servers
    lengths = servers.in_tokens, servers.out_tokens, servers.out_tokens_cv
    return RequestShapes(*(length[pairs.server] for length in lengths))


def _variability_of(arrays: SystemArrays, pairs: Pairs) -> Variability:
    servers = arrays.servers
    own = pairs.server
    shapes = None if servers.shapes is None else servers.shapes.take(own)
    return Variability(servers.arrival_cv[own], servers.in_tokens_cv[own], servers.out_tokens_cv[own], shapes)


def _own_of(arrays: SystemArrays, pairs: Pairs) -> OwnArrays | None:
    """Return the arrays that only the kind of these pairs has, or None; all have the same latency model."""
    laws = arrays.profiles.laws
    own = arrays.servers.own.get(kind_of_law(laws.laws[laws.law[pairs.profile[0]]]).name)
    return None if own is None else own.of_pairs(pairs.server, pairs.accelerator)


def own_fields(
    arrays: SystemArrays, system: System, pairs: Pairs | CandidateTable, row: int
) -> Mapping[str, Any]:
    """Return the fields of a `Pool` that only the kind of a pair's server has.

    Args:
        pairs: the pairs, or candidates.
        row: index of the pair.
    """
    server_name = arrays.server_names[pairs.server[row]]
    server, accelerator = system.servers[server_name], arrays.accelerator_names[pairs.accelerator[row]]
    profile = system.profiles[server.model, accelerator]
    kind = kind_of_profile(profile)
    own = arrays.servers.own.get(kind.name)
    settings = None if own is None else own.of_pairs(pairs.server[[row]], pairs.accelerator[[row]])
    return kind.pool_fields(server, profile, int(pairs.max_batch[row]), settings)


def targets_of(arrays: SystemArrays, pairs: Pairs) -> Targets:
    """Return the targets of pairs at the replica: the targets of their servers minus the network latency."""
    offset_ms = arrays.servers.delay_ms[pairs.server, pairs.accelerator]
    return arrays.servers.targets.take(pairs.server).before(offset_ms)


def largest_rates(arrays: SystemArrays, pairs: Pairs, targets: Targets) -> FloatArray:
    """Return the maximum rate within targets of each pair [requests/s], shape (R,); NaN if there is none.

    Args:
        pairs: R pairs.
        targets: targets of the pairs at the replica.
    """
    rates = np.full(len(pairs.server), np.nan)

    def fill(rows: IntArray) -> None:
        works = rows[law_of(arrays, pairs.take(rows)).has_work()]
        if len(works):
            replicas = replicas_of(arrays, pairs.take(works))
            rates[works] = largest_rate(replicas, targets.take(works)).max_rate_rps

    in_threads(fill, chunks(arrays, pairs, np.arange(len(pairs.server))))
    return rates


def chunks(arrays: SystemArrays, pairs: Pairs, rows: IntArray) -> list[IntArray]:
    """Split pairs into chunks of bounded size with the same queue and latency model and similar batch limits.

    Args:
        rows: indices of the pairs to split.
    """
    laws, queue_model, models = arrays.profiles.laws, arrays.profiles.queue_model, [*QUEUE_MODELS.values()]
    profile = pairs.profile[rows]
    group = queue_model[profile] * len(laws.laws) + laws.law[profile]
    if arrays.roles is not None:
        group += arrays.roles.role[pairs.server[rows]] * len(models) * len(laws.laws)
    result = []
    for one in np.unique(group):
        part = rows[group == one]
        limit = models[int(queue_model[pairs.profile[part[0]]])].chunk_elements
        # Equal pairs are in the same chunk and are computed once.
        part = part[np.lexsort((pairs.profile[part], pairs.max_batch[part]))]
        end = len(part)
        while end:
            count = max(1, limit // (int(pairs.max_batch[part[end - 1]]) + 1))
            result.append(part[max(0, end - count) : end])
            end = max(0, end - count)
    return result


def arrays_of(system: System) -> SystemArrays:
    """Convert a system to arrays, with the best of the alternative settings of each pair."""
    arrays = tabulate(system)
    for name, own in arrays.servers.own.items():
        if (own.count > 1).any():
            arrays = _with_best_rows(arrays, name, own)
    return arrays


def _with_best_rows(arrays: SystemArrays, name: str, own: OwnTable) -> SystemArrays:
    """For the servers of one kind, choose the alternative with the highest maximum rate for each pair.

    Ties go to the first alternative.
    """
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    pairs = pairs.take(own.count[pairs.server] > 1)
    best_rate, best = np.full(len(pairs.server), -np.inf), own.chosen[pairs.server, pairs.accelerator]
    for row in range(own.count.max()):
        rows = own.first + np.minimum(row, own.count - 1)
        tried = _with_rows(arrays, name, np.broadcast_to(rows[:, np.newaxis], own.chosen.shape))
        rates = largest_rates(tried, pairs, targets_of(tried, pairs))
        better = np.nan_to_num(rates, nan=-np.inf) > best_rate * (1 + SAME)
        best_rate = np.where(better, rates, best_rate)
        best = np.where(better, rows[pairs.server], best)
    chosen = own.chosen.copy()
    chosen[pairs.server, pairs.accelerator] = best
    return _with_rows(arrays, name, frozen(chosen))


def _with_rows(arrays: SystemArrays, name: str, chosen: IntArray) -> SystemArrays:
    """Return a copy in which the pairs of one kind of server use the given alternatives."""
    own = arrays.servers.own
    changed = {**own, name: replace(own[name], chosen=chosen)}
    return replace(arrays, servers=replace(arrays.servers, own=changed))
