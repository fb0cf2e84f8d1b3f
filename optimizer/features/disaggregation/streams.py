"""Prefill and decode pools of servers as planned servers (math.md section 36).

The TTFT target is divided: a share is for the decode pool, the rest for the prefill pool. Before the plan is
known, the two pools of every share are planned servers beside the server itself; afterwards, only those of
the chosen share are, or the server itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from pydantic import ConfigDict

from optimizer.arrays import FloatArray, sorted_by_key
from optimizer.errors import SpecError
from optimizer.features.disaggregation.fields import HandoverOptions, Role
from optimizer.kinds.fields import DEFAULT_MAX_BATCH
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.schema import Accelerator, AllocationData, CurrentPool, ModelProfile, ModelTarget, Server
from optimizer.schema.names import Finding
from optimizer.schema.pools import TargetFigure
from optimizer.spec.feature import Documents

CONTINUOUS = ContinuousQueues.name
ROLES: tuple[Role, ...] = ("prefill", "decode")
SHARES = (0.05, 0.2, 0.4)
"""Shares of the TTFT target that the decode pool can have, in ascending order; it has none if the prefill
replica sends the first token.
"""
LAYERS = 32
"""Number of layers that are sent one by one; most models have more, so that less is left at the end."""
LINKS: Mapping[str, float] = MappingProxyType(
    {"A100": 25.0, "H100": 50.0, "H200": 50.0, "H20": 50.0, "B200": 50.0, "B300": 100.0, "MI300X": 50.0}
)
"""Usual bandwidth of the network of an accelerator type [GB/s] (2026-11): one NIC for each card in the
vendors' reference servers, of 200 Gbit/s (DGX A100), 400 Gbit/s (DGX H100, H200, B200; HGX H20; MI300X
platforms) or 800 Gbit/s (DGX B300), according to their data sheets.
"""
Choice = tuple[tuple[str, ...], ...]
"""Chosen pools of a server: (("prefill", "0.2"), ("decode", "0.2")), or one empty part for the server."""


class _HasTtft(Protocol):
    """Figures of a pool."""

    @property
    def ttft_ms(self) -> float | None:
        """Mean TTFT [ms]."""

    @property
    def targets(self) -> tuple[TargetFigure, ...]:
        """Every target with its value."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other values."""


Figures = TypeVar("Figures", bound=_HasTtft)


class RolePool(Server):
    """The prefill or decode replicas of a server, as a planned server."""

    model_config = ConfigDict(defer_build=True)  # never validated

    whole: Server
    """The server whose requests the pool serves."""
    role: Role
    decode_share: float
    """Share of the TTFT target that is for the decode pool."""

    @property
    def has_load(self) -> bool:
        """Whether the pool can be chosen or is chosen; others only have replicas that run now."""
        return self.current.load.arrival_rate_rpm > 0

    @property
    def choice(self) -> tuple[str, ...]:
        """Return the part of a `Choice` that stands for the pool."""
        return self.role, f"{self.decode_share:g}"


def can_disaggregate(server: Server) -> bool:
    """Return whether prefill and decode pools are possible for a planned server."""
    return (
        server.disaggregation is not None
        and not isinstance(server, RolePool)
        and server.current.load.arrival_rate_rpm > 0
    )


def wholes_with_roles(servers: Mapping[str, Server]) -> dict[str, Server]:
    """Return the servers that can have prefill and decode pools, by name, with all their current pools."""
    ones = sorted(servers.values(), key=lambda one: isinstance(one, RolePool))  # these know all current pools
    wholes = [one.whole if isinstance(one, RolePool) else one for one in ones]
    return {one.name: one for one in wholes if can_disaggregate(one)}


def with_possible_roles(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return planned servers by name, with the possible prefill and decode pools of each."""
    wholes = [server for server in servers.values() if can_disaggregate(server)]
    more = {server.name: _aggregated(server) for server in wholes}
    more |= {pool.name: pool for server in wholes for pool in possible_roles(server)}
    return sorted_by_key({**servers, **more}) if more else servers


def with_roles(servers: Mapping[str, Server], choices: Mapping[str, Choice]) -> Mapping[str, Server]:
    """Return planned servers by name, in which servers are replaced by their chosen pools.

    A server or pool that is not chosen remains if it runs now, without load.

    Args:
        servers: the planned servers, possibly with pools.
        choices: chosen pools by server; one that is not possible is ignored.
    """
    wholes = wholes_with_roles(servers)
    pools: dict[str, Server] = {}
    for name in wholes.keys() & choices.keys():
        whole = _aggregated(wholes[name])
        chosen: list[Server] = [*possible_roles(wholes[name], choices[name])]
        others = [whole]
        if len(chosen) < len(ROLES):
            chosen, others = [whole], [*islice(possible_roles(wholes[name]), len(ROLES))]
        chosen += [one.kept_without_load() for one in others if one.current.is_running]
        pools |= {name_in_plans(one): one.model_copy(update={"name": name_in_plans(one)}) for one in chosen}
    result = {
        name: one
        for name, one in servers.items()
        if not (owner_of_role(one) in wholes and owner_of_role(one) in choices)
    } | pools
    same = result.keys() == servers.keys() and all(result[name] == servers[name] for name in pools)
    return servers if same else sorted_by_key(result)


def name_in_plans(server: Server) -> str:
    """Return the name of a planned server in plans, which does not depend on the share of the TTFT target."""
    return pool_name(server.whole.name, server.role) if isinstance(server, RolePool) else server.name


def with_role_names(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return servers with both pools of each server that can have them, by their names in plans."""
    found = dict(servers)
    for name, server in servers.items():
        if server.disaggregation is not None:
            found[name] = _aggregated(server)
            for pool in islice(possible_roles(server), len(ROLES)):
                found[name_in_plans(pool)] = pool.model_copy(update={"name": name_in_plans(pool)})
    return found


def owner_of_role(server: Server) -> str:
    """Return the name of the document's server to which a planned server belongs."""
    return server.whole.name if isinstance(server, RolePool) else server.name


def role_names(server: Server) -> tuple[str, ...]:
    """Return the names in plans of a document's server and of its possible pools; empty without pools."""
    if server.disaggregation is None or isinstance(server, RolePool):
        return ()
    return server.name, *(pool_name(server.name, role) for role in ROLES)


def pool_name(server: str, role: Role) -> str:
    """Return the name in plans of the prefill or decode pool of a document's server, given its name."""
    return f"{server} ({role})"


def possible_roles(server: Server, choice: Choice | None = None) -> Iterator[RolePool]:
    """Yield the prefill and the decode pool of a server for each share of the TTFT target.

    The current replicas of a role are those of its pool of every share.

    Args:
        server: the server.
        choice: the only pools to yield; None for all.
    """
    load, one = server.current.load, {"out_tokens": 1.0, "out_tokens_cv": 0.0}
    shapes = tuple(shape.model_copy(update=one) for shape in load.shapes)
    one_token = load.model_copy(update={**one, "shapes": shapes})
    common = {field: getattr(server, field) for field in Server.model_fields}
    for share in (0.0,) if is_seeded(server) else SHARES:
        for role in ROLES:
            if choice is not None and (role, f"{share:g}") not in choice:
                continue
            own: dict[str, Any] = {
                "name": f"{server.name} ({role} {share:g})",
                "current": AllocationData.model_construct(
                    pools=tuple(pool for pool in server.current.pools if pool.serving_role == role),
                    load=one_token if role == "prefill" else load,
                ),
            }
            if role == "prefill":
                own["max_batch_size"] = server.max_batch_size or DEFAULT_MAX_BATCH
            yield RolePool.model_construct(**{**common, **own}, whole=server, role=role, decode_share=share)


def current_roles(servers: Mapping[str, Server]) -> Iterator[dict[str, Choice]]:
    """Yield the pools of the servers whose prefill and decode replicas run now, once for each possible share.

    It yields at least one mapping, which is empty if no such replicas run.
    """
    wholes = wholes_with_roles(servers)
    mine = {
        name: [pool.choice for pool in possible_roles(one)]
        for name, one in wholes.items()
        if any(pool.serving_role for pool in one.current.pools)
    }
    for k in range(max((len(one) for one in mine.values()), default=1) // len(ROLES) + (not mine)):
        yield {name: (*one[2 * k : 2 * k + 2],) or (*one[:2],) for name, one in mine.items()}


def _aggregated(server: Server) -> Server:
    """Return a server with only those of its current pools whose replicas do both."""
    pools = tuple(pool for pool in server.current.pools if pool.serving_role is None)
    if len(pools) == len(server.current.pools):
        return server
    current = AllocationData.model_construct(pools=pools, load=server.current.load)
    return server.model_copy(update={"current": current})


def with_role_allocations(server: Server, allocations: Mapping[str, AllocationData], field: str) -> Server:
    """Return a document's server with the allocations of its pools by role and the same load.

    Args:
        server: a server that can have prefill and decode pools.
        allocations: allocations by the name of the server or pool in plans; others are ignored.
        field: the allocation to replace: ``current`` or ``desired``.
    """
    pools = tuple(
        pool.model_copy(update={"serving_role": role})
        for role in (None, *ROLES)
        for pool in _pools_of(allocations.get(pool_name(server.name, role) if role else server.name))
    )
    allocation = AllocationData.model_construct(pools=pools, load=server.current.load)
    return server.model_copy(update={field: allocation})


def _pools_of(allocation: AllocationData | None) -> Sequence[CurrentPool]:
    return () if allocation is None else allocation.pools or allocation.stated_pools


def target_of_role(target: ModelTarget, pool: RolePool) -> ModelTarget:
    """Return the targets of a pool: its share of the TTFT target; for decoding also the others (eq. 302)."""
    if pool.role == "decode":
        return target.model_copy(update={"ttft_ms": target.ttft_ms * pool.decode_share})
    ttft_ms = target.ttft_ms * (1 - pool.decode_share)
    return target.model_copy(update={"ttft_ms": ttft_ms, "itl_ms": 0.0, "user_tps": 0.0})


def with_decode_ttft(server: RolePool, prefill: Figures, decode: Figures) -> Figures:
    """Return the figures of a prefill pool with the TTFT of the client, and its whole target.

    Means add up; percentiles are at most the sum of both.

    Args:
        server: the prefill pool.
        prefill: its figures; their TTFT is its own part, against the part of the target.
        decode: figures of the decode pool.
    """
    parts = {figure.measure: figure.value for figure in decode.targets}
    targets = [
        figure.model_copy(
            update={
                "value_ms": figure.value + parts.get(figure.measure, 0.0),
                "limit_ms": figure.limit / (1 - server.decode_share),
            }
        )
        for figure in prefill.targets
    ]
    total_ms = (prefill.ttft_ms or 0.0) + (decode.ttft_ms or 0.0)
    return prefill.model_copy(update={"ttft_ms": total_ms, "targets": tuple(targets)})


def is_seeded(server: Server) -> bool:
    """Return whether the prefill replica of a server sends the first token."""
    return server.first_token == "prefill"  # noqa: S105  not a password


# --- links -----------------------------------------------------------------------------------------------


def bandwidth_gbps(sender: Accelerator, receiver: Accelerator) -> float:
    """Return the bandwidth from a prefill replica to a decode replica [GB/s]; 0 without a link."""
    if receiver.type in sender.links:
        return sender.links[receiver.type]
    known = [own_gbps(item) for item in (sender, receiver)]
    return min(gbps or 0.0 for gbps in known)


def bandwidths_gbps(accelerators: Mapping[str, Accelerator]) -> FloatArray:
    """Return the bandwidth from each accelerator to each [GB/s], shape (A, A); 0 without a link."""
    items = [*accelerators.values()]
    return np.array([[bandwidth_gbps(sender, receiver) for receiver in items] for sender in items])


def own_gbps(accelerator: Accelerator) -> float | None:
    """Return the stated or usual bandwidth of an accelerator's link [GB/s]; None if it is not known."""
    if accelerator.link_gbps is not None:
        return accelerator.link_gbps
    return LINKS.get(accelerator.type.upper())


def receivers(
    sender: Accelerator, accelerators: Mapping[str, Accelerator], server: Server
) -> Mapping[str, float]:
    """Return the accelerators to which prefill replicas of a server can send, with the bandwidths [GB/s]."""
    found = {
        name: bandwidth_gbps(sender, item)
        for name, item in accelerators.items()
        if server.accelerators is None or name in server.accelerators
    }
    return {name: gbps for name, gbps in found.items() if gbps > 0}


# --- checks ----------------------------------------------------------------------------------------------


def check_without_roles(servers: Iterable[Server], what: str) -> None:
    """Check that no server can have prefill and decode pools.

    Args:
        servers: servers of documents, or planned ones.
        what: what does not support them.

    Raises:
        SpecError: a server can.
    """
    for server in servers:
        if server.disaggregation is not None:
            raise SpecError(
                f"disaggregation of {owner_of_role(server)!r}: {what} does not support prefill and decode "
                "pools; set it to never, or plan each load with solve"
            )


def role_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the documents of servers with prefill and decode pools."""
    servers = documents.index.servers
    for part, at, server in servers.values():
        if server.disaggregation is None:
            continue
        here = (*at, "disaggregation")
        for text in (
            *_profile_problems(documents.profiles.get(server.model, ()), server),
            *_link_problems(documents, server),
        ):
            yield Finding(part, here, text)
        for name in set(role_names(server)) & servers.keys() - {server.name}:
            yield Finding(part, here, f"a pool would be named {name!r}, as is a server; rename that")
        for section in documents.index.classes.values():
            for target in section.item.model_targets:
                if section.item.name == server.service_class and target.model == server.model:
                    for key in _refused_targets(target):
                        text = (
                            f"{key} of class {section.item.name!r} is not planned with it; remove one of them"
                        )
                        yield Finding(part, here, text)


def _profile_problems(profiles: Iterable[ModelProfile], server: Server) -> Iterator[str]:
    for profile in profiles:
        if server.accelerators is not None and profile.accelerator not in server.accelerators:
            continue
        where = f"models {profile.name!r} on {profile.accelerator!r}"
        if profile.queue_model != CONTINUOUS:
            yield f"{where} has queueModel {profile.queue_model!r}; it needs perfParms and continuous"
        elif profile.kv_bytes_per_token is None and not profile.is_estimated:
            yield f"{where} has no kvBytesPerToken; state the size of the KV cache of a token"


def _link_problems(documents: Documents, server: Server) -> Iterator[str]:
    items = [item for _, _, item in documents.index.accelerators.values()]
    types = {item.type for item in items}
    for item in items:
        for kind in item.links.keys() - types:
            yield f"links of accelerator {item.name!r}: no accelerator has the type {kind!r}; correct it"
        used = server.accelerators is None or item.name in server.accelerators
        if used and own_gbps(item) is None:
            yield (
                f"the linkBandwidth of accelerator {item.name!r} is not known; state it [GB/s], 0 for none"
            )


def _refused_targets(target: ModelTarget) -> Iterator[str]:
    refused = {
        "slo-e2e": target.e2e_ms,
        "slo-tps": target.tps,
        "goodputShare": target.goodput_share,
        "latency": target.latency,
        "shapes": target.shapes,
    }
    yield from (key for key, value in refused.items() if value)


def handover_of(options: Any) -> HandoverOptions:
    """Return the handover that the optimizer's options state, or the default."""
    return getattr(options, "handover", None) or HandoverOptions()
