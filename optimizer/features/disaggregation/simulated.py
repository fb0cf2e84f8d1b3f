"""Prefill and decode replicas of a plan for the simulator."""

from optimizer.features.disaggregation.streams import LAYERS, RolePool, handover_of, receivers
from optimizer.kinds.table import kind_of_profile
from optimizer.plan import Pool
from optimizer.schema import ModelProfile, Server
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.pools import DecodeReplica, PooledReplicas, Transfer, decode_coefficients
from optimizer.simulation.replicas import SimulatedReplica
from optimizer.spec.system import System


def replica_of(system: System, server: Server, profile: ModelProfile, pool: Pool) -> SimulatedReplica:
    """Return a replica of a pool for the simulator; that of a prefill pool ends with the handover.

    Args:
        system: the system.
        server: planned server of the pool.
        profile: profile of its model on the pool's accelerator.
        pool: the pool.
    """
    if not isinstance(server, RolePool):
        return kind_of_profile(profile).replica(server, profile, pool.max_batch, pool)
    assert profile.iteration is not None
    times = IterationCoefficients(
        *(getattr(profile.iteration, name) for name in IterationCoefficients._fields)
    )
    memory = UNLIMITED if profile.kv_capacity_tokens is None else profile.kv_capacity_tokens
    limits = Limits(pool.max_batch, 2 * pool.max_batch, memory)
    if server.role == "decode":
        return DecodeReplica(decode_coefficients(times), limits)
    handover = handover_of(system.options)
    links = receivers(system.accelerators[pool.accelerator], system.accelerators, server)
    return PooledReplicas(
        times=times,
        decode_times=times,
        budget=profile.max_num_tokens,
        prefill_kv_tokens=UNLIMITED,
        limits=limits,
        prefill_replicas=1,
        decode_replicas=1,
        round_robin=False,
        seeded=True,
        transfer=Transfer(
            min(links.values(), default=1.0),
            profile.kv_bytes_per_token or 0.0,
            LAYERS if handover.layerwise else 1,
            handover.fixed_ms,
        ),
    )
