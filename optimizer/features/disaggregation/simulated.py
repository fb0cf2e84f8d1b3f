"""Prefill and decode pools of a plan for the simulator, which runs both together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.candidates.arrays import profile_of
from optimizer.errors import SpecError
from optimizer.features.disaggregation.fields import Role
from optimizer.features.disaggregation.streams import (
    LAYERS,
    ROLES,
    RolePool,
    bandwidth_gbps,
    handover_of,
    is_seeded,
    pool_name,
    with_decode_ttft,
)
from optimizer.kinds.simulated import beside_heads, open_load
from optimizer.plan import Plan, Pool
from optimizer.schema import ModelProfile, Server
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.pools import (
    PooledReplicas,
    PooledRun,
    PrefillReplica,
    Transfer,
    decode_coefficients,
)
from optimizer.simulation.replicas import MAX_REQUESTS, Effort, TokenReplica, run_replica
from optimizer.simulation.workload import Load
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class BothPools:
    """Prefill and decode pool of a server, which are simulated in one run."""

    server: str
    """Name of the server whose requests they serve."""
    load: Load
    """Requests to both pools."""
    replica: PooledReplicas
    role: Role
    """Role of the pool whose metrics are wanted."""

    @property
    def replicas(self) -> Mapping[Role, int]:
        """Number of replicas by role."""
        return {"prefill": self.replica.prefill_replicas, "decode": self.replica.decode_replicas}

    @property
    def part(self) -> PrefillReplica | TokenReplica:
        """One replica of the pool."""
        return self.replica.prefill if self.role == "prefill" else self.replica.decode

    def with_replicas(self, replicas: Mapping[Role, int]) -> "BothPools":
        """Return a copy with other numbers of replicas by role."""
        prefill, decode = (replicas[role] for role in ROLES)
        return replace(self, replica=replace(self.replica, prefill_replicas=prefill, decode_replicas=decode))

    @property
    def latencies(self) -> Sequence[str]:
        """Latencies that belong to the pool."""
        if self.role == "prefill":
            return ("ttft",)
        return ("itl", "e2e") if self.replica.seeded else ("itl", "ttft", "e2e")

    def runs(self, effort: Effort, stream: int) -> list[PooledRun]:
        """Simulate both pools; each replica of the larger one gets the number of requests of the effort."""
        requests = min(effort.requests * max(self.replicas.values()), MAX_REQUESTS)
        runs = run_replica(self.load, self.replica, replace(effort, requests=requests), stream)
        return [run for run in runs if isinstance(run, PooledRun)]

    def seen(self, run: PooledRun) -> SimulatedRun:
        """Return a run as the pool sees it.

        To the prefill pool belongs the TTFT of the client. At the decode pool, requests arrive with the end
        of the handover.
        """
        if self.role == "prefill":
            return replace(run, busy_ms=np.nan)  # the batches are those of the decode replicas
        return replace(run, sent_ms=run.received_ms)


def both_pools(system: System, plan: Plan, pool: RolePool) -> BothPools:
    """Return the simulation of a server with prefill and decode pools, for one of them.

    Args:
        system: the system with the chosen pools.
        plan: the plan.
        pool: the prefill or the decode pool.

    Raises:
        SpecError: the plan lacks a pool, or a pool is on several accelerators or has no link to the other.
    """
    server, handover = pool.whole, handover_of(system.options)
    prefill, decode = (_pool_of(plan, server, role) for role in ROLES)
    bandwidth = bandwidth_gbps(*(system.accelerators[each.accelerator] for each in (prefill, decode)))
    if not bandwidth:
        raise SpecError(
            f"allocations.{pool_name(server.name, 'prefill')}: no link from {prefill.accelerator!r} to "
            f"{decode.accelerator!r}; solve again"
        )
    load = server.current.load
    profile, other = (
        beside_heads(profile_of(system, server, each.accelerator), load) for each in (prefill, decode)
    )
    both = PooledReplicas(
        times=_times(profile),
        decode_times=decode_coefficients(_times(other)),
        budget=profile.max_num_tokens,
        prefill_kv_tokens=_kv_tokens(profile),
        limits=Limits(decode.max_batch, 2 * decode.max_batch, _kv_tokens(other)),
        prefill_replicas=prefill.num_replicas,
        decode_replicas=decode.num_replicas,
        round_robin=False,
        seeded=is_seeded(server),
        transfer=Transfer(
            bandwidth,
            profile.kv_bytes_per_token or 0.0,
            LAYERS if handover.layerwise else 1,
            handover.fixed_ms,
        ),
        only_steady=True,
    )
    requests = open_load(load, decode.arrival_rate_rpm / SECONDS_PER_MINUTE)
    return BothPools(server.name, requests, both, pool.role)


def as_client(plan: Plan, server: RolePool, pool: Pool) -> Pool:
    """Return the prefill pool with the TTFT of the client in place of its own part."""
    if server.role == "decode" or is_seeded(server):
        return pool
    return with_decode_ttft(server, pool, _pool_of(plan, server.whole, "decode"))


def _pool_of(plan: Plan, server: Server, role: Role) -> Pool:
    """Return the only pool of a role.

    Raises:
        SpecError: there is none, or there are several.
    """
    name = pool_name(server.name, role)
    pools = plan.allocations.get(name, ())
    if len(pools) != 1:
        raise SpecError(f"allocations.{name}: must have one accelerator, not {len(pools)}; solve again")
    return pools[0]


def _times(profile: ModelProfile) -> IterationCoefficients:
    assert profile.iteration is not None
    return IterationCoefficients(
        *(getattr(profile.iteration, name) for name in IterationCoefficients._fields)
    )


def _kv_tokens(profile: ModelProfile) -> int:
    return UNLIMITED if profile.kv_capacity_tokens is None else profile.kv_capacity_tokens
