"""Divides the request shapes of a server among pools by prompt length (math.md section 17.9).

The shapes are sorted by prompt length, and shapes that no length separates form one step. A pool serves the
shapes of consecutive steps and is planned like a server of its own, such as ``chat (docs)``. Before the plan
is known, every possible pool is a planned server; afterwards, only the chosen ones are.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict

from optimizer.arrays import sorted_by_key
from optimizer.errors import SpecError
from optimizer.features.caches.streams import thinned
from optimizer.features.disaggregation.streams import RolePool
from optimizer.kinds.request_shapes import RequestShape
from optimizer.schema import AllocationData, Load, ModelTarget, Server
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents

Partition = tuple[tuple[str, ...], ...]
"""Names of the request shapes of each pool, in the order of their prompt lengths."""


class LengthPool(Server):
    """The requests of some shapes of a server, as a planned server."""

    model_config = ConfigDict(defer_build=True)  # never validated

    whole: Server
    """The server with all shapes."""
    first: int
    """Index of the first step of the pool."""
    last: int
    """Index of its last step."""

    @property
    def is_whole(self) -> bool:
        """Whether the pool serves all shapes."""
        return self.name == self.whole.name

    @property
    def has_load(self) -> bool:
        """Whether the pool can be chosen or is chosen; others only have replicas that run now."""
        return self.current.load.arrival_rate_rpm > 0


def steps_of(load: Load) -> tuple[tuple[RequestShape, ...], ...]:
    """Return the shapes of a load in ascending order of prompt length; equal lengths are one step.

    A shape without requests belongs to the step before it, or to the first.
    """
    steps: list[list[RequestShape]] = []
    for shape in sorted(load.shapes, key=lambda one: (one.in_tokens, one.name)):
        joins = steps and (
            not shape.share
            or not any(one.share for one in steps[-1])
            or steps[-1][-1].in_tokens == shape.in_tokens
        )
        if joins:
            steps[-1].append(shape)
        else:
            steps.append([shape])
    return tuple(map(tuple, steps))


def boundary_tokens(shorter: Sequence[RequestShape], longer: Sequence[RequestShape]) -> int:
    """Return the prompt length from which the router sends requests to the pool of the longer shapes.

    It is the geometric mean of the two neighbouring mean lengths, rounded up (eq. 281).
    """
    longest, shortest = max(one.in_tokens for one in shorter), min(one.in_tokens for one in longer)
    return math.ceil(math.sqrt(longest * shortest))


def can_divide(server: Server) -> bool:
    """Return whether several pools by length are possible for a planned server."""
    load = server.current.load
    return (
        server.pools_by_length is not None
        and not isinstance(server, LengthPool)
        and load.arrival_rate_rpm > 0
        and len(steps_of(load)) > 1
    )


def with_possible_pools(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return planned servers by name, with every possible pool of servers that can be divided."""
    more = {
        pool.name: pool
        for server in servers.values()
        if can_divide(server)
        for pool in _possible_pools(server)
    }
    return sorted_by_key({**servers, **more}) if more else servers


def with_pools(servers: Mapping[str, Server], partitions: Mapping[str, Partition]) -> Mapping[str, Server]:
    """Return planned servers by name, in which divided servers are replaced by their pools.

    Possible pools that are running now and that the partition lacks remain, without load.

    Args:
        servers: the planned servers, possibly divided.
        partitions: shapes of each pool, by server; a partition that is not possible is ignored.
    """
    wholes = wholes_of(servers)
    wanted = {
        name: partition
        for name, partition in partitions.items()
        if name in wholes and {*partition} <= {*pool_names(wholes[name]).values()}
    }
    pools: dict[str, Server] = {}
    for name, partition in wanted.items():
        for pool in _possible_pools(wholes[name]):
            if shape_names(pool) in partition:
                pools[pool.name] = pool
            elif pool.current.is_running:
                pools[pool.name] = pool.kept_without_load()
    others = {name: one for name, one in servers.items() if owner_of_pool(one) not in wanted}
    result = {**others, **pools}
    same = result.keys() == servers.keys() and all(result[name] == servers[name] for name in pools)
    return servers if same else sorted_by_key(result)


def wholes_of(servers: Mapping[str, Server]) -> dict[str, Server]:
    """Return the servers that can be divided, with all their shapes, by name."""
    wholes = [one.whole if isinstance(one, LengthPool) else one for one in servers.values()]
    return {one.name: one for one in wholes if can_divide(one)}


def as_ordinary(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return servers by name, in which pools by length are ordinary servers, and no others are divided."""
    fields = set(Server.model_fields) - {"pools_by_length", "disaggregation"}
    return {
        name: Server.model_construct(**{field: getattr(one, field) for field in fields})
        if one.pools_by_length is not None or one.disaggregation is not None
        else one
        for name, one in servers.items()
    }


def owner_of_pool(server: Server) -> str:
    """Return the name of the document's server to which a planned server belongs."""
    return server.whole.name if isinstance(server, LengthPool | RolePool) else server.name


def shape_names(server: Server) -> tuple[str, ...]:
    """Return the names of a server's shapes, in ascending order of prompt length."""
    return tuple(shape.name for step in steps_of(server.current.load) for shape in step)


def pool_names(server: Server) -> dict[str, tuple[str, ...]]:
    """Return the shapes of every possible pool of a document's server, by the name of the pool in plans."""
    return {pool.name: shape_names(pool) for pool in _possible_pools(server)} if can_divide(server) else {}


def _possible_pools(server: Server) -> Iterator[LengthPool]:
    """Yield every possible pool of a server: one for each interval of its steps (eq. 280)."""
    steps = steps_of(server.current.load)
    common = {field: getattr(server, field) for field in Server.model_fields}
    if server.keep_accelerator and server.current.accelerators:
        common["accelerators"] = server.current.accelerators
    for first in range(len(steps)):
        for last in range(first, len(steps)):
            shapes = [shape for step in steps[first : last + 1] for shape in step]
            own: dict[str, Any] = {"name": server.name, "current": _current(server, shapes)}
            if last - first + 1 < len(steps):
                own["name"] = f"{server.name} ({'+'.join(shape.name for shape in shapes)})"
            yield LengthPool.model_construct(**{**common, **own}, whole=server, first=first, last=last)


def _current(server: Server, shapes: Sequence[RequestShape]) -> AllocationData:
    """Return the current allocation of a possible pool, with its part of the load (eq. 282)."""
    now, names = server.current, {shape.name for shape in shapes}
    if len(shapes) == len(now.load.shapes):
        pools = tuple(pool for pool in now.pools if not pool.shapes or set(pool.shapes) == names)
        return now if pools == now.pools else now.model_copy(update={"pools": pools})
    total = math.fsum(shape.share or 0.0 for shape in now.load.shapes)
    share = math.fsum(shape.share or 0.0 for shape in shapes) / total
    own = [one.model_copy(update={"share": (one.share or 0.0) / (share * total)}) for one in shapes]
    load = Load.model_validate(
        {**thinned(now.load, share).model_dump(include=_STATED & now.load.model_fields_set), "shapes": own}
    )
    pools = tuple(pool for pool in now.pools if set(pool.shapes) == names)
    return AllocationData.model_construct(pools=pools, load=load)


_STATED = {"arrival_rate_rpm", "arrival_cv"}


def target_of_pool(target: ModelTarget, pool: LengthPool) -> ModelTarget:
    """Return the targets of a pool: equal latencies (eq. 283), and its share of the throughput target."""
    if not target.tps:
        return target
    tokens = [one.current.load.arrival_rate_rpm * one.current.load.out_tokens for one in (pool, pool.whole)]
    return target.model_copy(update={"tps": target.tps * tokens[0] / tokens[1]})


def with_pool_allocations(server: Server, allocations: Mapping[str, AllocationData], field: str) -> Server:
    """Return a document's server with the allocations of its pools by length and the same load.

    Args:
        server: a server with pools by length.
        allocations: allocations by the name of the pool in plans; others are ignored.
        field: the allocation to replace: ``current`` or ``desired``.
    """
    known = pool_names(server) or {server.name: ()}
    of_pools = {name: allocations[name] for name in known if name in allocations}
    if not of_pools:
        return server
    load = server.current.load if field == "current" else of_pools[next(iter(of_pools))].load
    running = {name: one for name, one in of_pools.items() if one.stated_pools}
    if running.keys() <= {server.name}:
        one = of_pools.get(server.name, AllocationData())
        return server.model_copy(update={field: one.model_copy(update={"load": load})})
    pools = tuple(
        pool.model_copy(update={"shapes": () if name == server.name else known[name]})
        for name, one in running.items()
        for pool in one.pools or one.stated_pools
    )
    return server.model_copy(update={field: AllocationData.model_construct(pools=pools, load=load)})


# --- checks --------------------------------------------------------------------------------------------


def check_without_lengths(servers: Iterable[Server], what: str) -> None:
    """Check that no server can have pools by length.

    Args:
        servers: servers of documents, or planned ones.
        what: what does not support such pools.

    Raises:
        SpecError: a server can.
    """
    for server in servers:
        if server.pools_by_length is not None:
            raise SpecError(
                f"poolsByLength of {owner_of_pool(server)!r}: {what} does not support pools by length; set "
                "it to never, or plan each load with solve"
            )


def length_pool_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the documents of servers with pools by length."""
    servers = documents.index.servers
    for part, at, server in servers.values():
        if server.pools_by_length is None:
            continue
        here = (*at, "poolsByLength")
        load = server.current.load
        if not load.shapes:
            text = "the load has no shapes to divide; state load.shapes (init --from-trace FILE finds them)"
            yield Finding(part, here, f"{text}, or remove it")
            continue
        if server.pools_by_length == "required" and load.arrival_rate_rpm and len(steps_of(load)) < 2:
            text = "prompt lengths do not separate the shapes; give two of them different avgInTokens"
            yield Finding(part, here, f"{text}, or set it to allowed")
        known = pool_names(server)
        for name in known.keys() & servers.keys() - {server.name}:
            yield Finding(part, here, f"a pool would be named {name!r}, as is a server; rename that")
        for i, pool in enumerate(server.current.pools):
            if pool.shapes and set(pool.shapes) not in map(set, known.values()):
                text = (
                    f"no pool by length can have the shapes {', '.join(pool.shapes)}; name consecutive ones"
                )
                yield Finding(part, (*at, "currentAlloc", "pools", i, "shapes"), text)
