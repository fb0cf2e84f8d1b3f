"""Roles and handovers of servers as arrays, and the queue models of prefill and decode pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen, grouped
from optimizer.features.disaggregation.streams import (
    LAYERS,
    ROLES,
    RolePool,
    bandwidths_gbps,
    handover_of,
    is_seeded,
)
from optimizer.kinds.fields import Load
from optimizer.queueing.disaggregated.handover import Handover
from optimizer.queueing.disaggregated.roles import DecodeQueues, PrefillQueues, RoleArrays
from optimizer.queueing.performance import QueueModel
from optimizer.schema import ModelProfile, Server
from optimizer.spec.system import System
from optimizer.timing.engine import IterationTimes

NO_ROLE = 0
"""Role of ordinary servers; those of `ROLES` are numbered from 1."""
STEP = 1.5
"""Iterations of a decode replica from the end of a handover to that of the first step."""
AMPLE = 64
"""Mean prompts in the KV cache of a replica from which its memory hardly matters."""
MODELS: tuple[type[QueueModel], ...] = (PrefillQueues, DecodeQueues)
"""Queue models of `ROLES`, in the same order."""


@dataclass(frozen=True, slots=True)
class RoleTable:
    """Roles of S servers, and their handovers from A accelerators."""

    role: IntArray
    """Number of each server's role, shape (S,)."""
    seeded: BoolArray
    """Whether the prefill replica sends the first token, shape (S,)."""
    bandwidth: FloatArray
    """Lowest bandwidth from each accelerator to those that can decode for the server [GB/s], shape (S, A); 0
    if there are none.
    """
    kv_bytes: FloatArray
    """Size of the KV cache of a token [bytes], shape (S, A)."""
    after_ms: FloatArray
    """Time after a handover for which a prefill replica still holds the KV cache [ms], shape (S,)."""
    layers: float
    fixed_ms: float
    decode: IntArray
    """Decode pool of each prefill pool beyond the lowest share of the TTFT target, shape (S,); -1 for others.
    """
    lower: IntArray
    """Decode pool of the share below that of each of these prefill pools, shape (S,)."""

    def has_role(self, server: IntArray) -> bool:
        """Return whether servers, which all have the same role, are prefill or decode pools."""
        return bool(self.role[server[0]] != NO_ROLE)

    def model_of(self, server: IntArray) -> type[QueueModel]:
        """Return the queue model of servers that all have the same role."""
        return MODELS[int(self.role[server[0]]) - 1]

    def needed(self, server: IntArray, found: tuple[IntArray, IntArray, IntArray]) -> BoolArray:
        """Return which prefill pools of `decode` can be useful: those with fewer decode replicas.

        A prefill pool of a lower share never needs more replicas.

        Args:
            server: indices of the prefill pools.
            found: planned server, accelerator and replicas of each candidate so far.
        """
        count = np.full(self.bandwidth.shape, np.inf)
        count[found[:2]] = found[2]
        return np.asarray((count[self.decode[server]] < count[self.lower[server]]).any(axis=1))

    def of_pairs(self, server: IntArray, accelerator: IntArray) -> RoleArrays:
        """Return the handovers of R server–accelerator pairs."""
        bandwidth, count = self.bandwidth[server, accelerator], len(server)
        handover = Handover(
            np.where(bandwidth > 0, bandwidth, 1.0),
            self.kv_bytes[server, accelerator],
            np.full(count, self.layers),
            np.full(count, self.fixed_ms),
        )
        return RoleArrays(self.seeded[server], handover, self.after_ms[server])


def role_table(system: System) -> RoleTable | None:
    """Return the roles of a system's planned servers; None if all are ordinary servers."""
    servers, accelerators = [*system.servers.values()], [*system.accelerators.values()]
    pools = {s: one for s, one in enumerate(servers) if isinstance(one, RolePool)}
    if not pools:
        return None
    role, seeded = np.zeros(len(servers), np.int64), np.zeros(len(servers), np.bool_)
    bandwidth, kv_bytes = np.zeros((2, len(servers), len(accelerators)))
    after_ms = np.zeros(len(servers))
    links = bandwidths_gbps(system.accelerators)
    for s, pool in pools.items():
        role[s] = ROLES.index(pool.role) + 1
        seeded[s] = is_seeded(pool)
        for a, item in enumerate(accelerators):
            profile = _profile(system, pool, item.name)
            kv_bytes[s, a] = (profile.kv_bytes_per_token or 0.0) if profile else 0.0
        used = [pool.accelerators is None or item.name in pool.accelerators for item in accelerators]
        least = np.where(used & (links > 0), links, np.inf).min(axis=1)
        receives = np.array(used) & (links > 0).any(axis=0)
        after_ms[s] = _after_ms(system, pool, [accelerators[a].name for a in np.flatnonzero(receives)])
        bandwidth[s] = np.where(np.isfinite(least), least, 0.0)
    handover = handover_of(system.options)
    return RoleTable(
        frozen(role),
        frozen(seeded),
        frozen(bandwidth),
        frozen(kv_bytes),
        frozen(after_ms),
        float(LAYERS if handover.layerwise else 1),
        handover.fixed_ms,
        *_later_pools(system, servers, pools),
    )


def _profile(system: System, pool: RolePool, accelerator: str) -> ModelProfile | None:
    """Return the profile of a pool's model on an accelerator, estimated if need be; None if there is none."""
    profile = system.profiles.get((pool.model, accelerator))
    if profile is None or not profile.is_estimated:
        return profile
    from optimizer.profiles.requested import requested_profile  # slow import

    return requested_profile(system, pool, accelerator).profile


def _after_ms(system: System, pool: RolePool, receivers: Sequence[str]) -> float:
    """Return the mean time from a handover to the end of the first step that the targets allow [ms].

    A step ends after one and a half iterations, unless requests queue for slots of decode replicas. It is 0
    without targets.
    """
    target, load = system.target_of(pool.whole), pool.whole.current.load
    if target is None:
        return 0.0
    itl_ms = min([x for x in (target.itl_ms, target.user_tps and 1000 / target.user_tps) if x] or [np.inf])
    profiles = (_profile(system, pool, name) for name in receivers)
    full_ms = min((_full_step_ms(profile, load) for profile in profiles if profile), default=np.inf)
    ttft_ms = pool.decode_share * target.ttft_ms or np.inf
    allowed = min(ttft_ms, STEP * itl_ms)
    if full_ms < itl_ms:  # the wait is about exponential
        wait_ms = (load.out_tokens - 1) * (itl_ms - full_ms) if is_seeded(pool) else np.inf
        late = 1.0 if target.percentile is None else max(-np.log1p(-target.percentile / 100), 1.0)
        allowed = max(min(ttft_ms, wait_ms) / late, allowed)
    return float(allowed) if np.isfinite(allowed) else 0.0


def _full_step_ms(profile: ModelProfile, load: Load) -> float:
    """Return the time of an iteration with as many requests as the KV cache holds [ms].

    It is inf for large caches: prompts do not wait for their memory.
    """
    capacity, tokens = profile.kv_capacity_tokens, load.in_tokens
    if capacity is None or profile.iteration is None or capacity > AMPLE * tokens:
        return np.inf
    slots = capacity / (tokens + load.out_tokens)
    names = (field.name for field in fields(IterationTimes))
    times = IterationTimes(*(np.array(getattr(profile.iteration, name, 0.0)) for name in names))
    return float(times.ms(slots, slots * (tokens + load.out_tokens / 2)))


def _later_pools(
    system: System, servers: Sequence[Server], pools: Mapping[int, RolePool]
) -> tuple[IntArray, IntArray]:
    """Return the decode pools of each prefill pool beyond the lowest share, and of the share below."""
    decode, lower = np.full((2, len(servers)), -1)
    if system.options.max_power_w is not None:
        return decode, lower  # fewer replicas can need more power
    own = grouped(
        (pool.whole.name, (pool.decode_share, s))
        for s, pool in pools.items()
        if not any(one.serving_role for one in pool.whole.current.pools)  # keeping more can be better
    )
    for mine in own.values():
        ordered = [s for _, s in sorted(mine)]
        of_role = [[s for s in ordered if pools[s].role == name] for name in ROLES]
        decode[of_role[0][1:]], lower[of_role[0][1:]] = of_role[1][1:], of_role[1][:-1]
    return decode, lower
