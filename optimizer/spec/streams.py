"""Streams: sets of requests of a system, each of which is served or unserved as a unit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.features.caches.streams import thinned
from optimizer.features.disaggregation.streams import role_names, with_role_allocations
from optimizer.features.length_pools.streams import owner_of_pool, pool_names, with_pool_allocations
from optimizer.features.shared_queues.streams import SharedQueue, joint_numbers
from optimizer.features.versions.streams import Version, version_name, with_allocation
from optimizer.schema import AllocationData, Load, Server


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one server, of one member of a shared queue, or of one version of a server."""

    name: str
    """Name in plans: that of the server, the member of the queue, or the version."""
    owner: str
    """Name of the document's server that states the load of the stream."""
    group: str
    """Name of the planned server whose replicas serve the stream: the server itself, or its shared queue."""
    server: Server
    """Server with the settings of the stream, and with the stream's own load."""
    priority: int
    """Priority of the service class; offline work ranks last."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and service class of the stream."""
        return self.server.model, self.server.service_class

    @property
    def load(self) -> Load:
        """Load that replicas must serve, without requests that a result cache answers."""
        return replica_load(self.server)


def streams_of(servers: Mapping[str, Server], priority_of: Callable[[Server], int]) -> dict[str, Stream]:
    """Return the streams of planned servers, by name.

    Args:
        servers: servers in planned form, by name.
        priority_of: returns the priority of a server.
    """
    streams = {
        part.name: Stream(
            name=part.name,
            owner=owner_of(part),
            group=name,
            server=part,
            priority=priority_of(part),
        )
        for name, server in servers.items()
        for part in members_of(server)
    }
    return {name: streams[name] for name in sorted(streams)}


def has_members(server: Server) -> bool:
    """Return whether a planned server stands for several servers that share its replicas."""
    return isinstance(server, SharedQueue)


def owner_of(server: Server) -> str:
    """Return the name of the document's server to which a planned server belongs, or of the shared queue."""
    return server.whole.name if isinstance(server, Version) else owner_of_pool(server)


def planned_names(server: Server) -> tuple[str, ...]:
    """Return the names under which a document's server is planned.

    They are those of its queue, its versions, its possible pools by length, or itself.
    """
    versions = tuple(version_name(server, share.model) for share in server.split or ())
    return (
        versions or tuple(pool_names(server)) or role_names(server) or (server.shared_queue or server.name,)
    )


def with_allocations(
    server: Server, allocations: Mapping[str, AllocationData], field: str = "current"
) -> Server:
    """Return a document's server with other allocations and the same load.

    Args:
        allocations: allocations by the name under which the server, its queue or one of its versions is
            planned; others are ignored.
        field: the allocation to replace: ``current`` or ``desired``.
    """
    if server.pools_by_length is not None:
        return with_pool_allocations(server, allocations, field)
    if allocations.keys() & set(role_names(server)[1:]):
        return with_role_allocations(server, allocations, field)
    for name in planned_names(server):
        if name in allocations:
            server = with_allocation(server, name, allocations[name], field)
    return server


def planned_name(server: Server) -> str:
    """Return the name under which the server's own model, as opposed to its versions, is planned."""
    return version_name(server, server.model) if server.split else server.shared_queue or server.name


def members_of(server: Server) -> tuple[Server, ...]:
    """Return the members of a planned server with their loads: itself, or the servers of a queue."""
    return server.members if isinstance(server, SharedQueue) else (server,)


def shape_numbers(server: Server, member: Server) -> Mapping[int, int]:
    """Return the numbers of the request shapes of a member, by their numbers in the load of its queue.

    The result is empty if the queue computes with the mean request of its members.
    """
    return joint_numbers(server, member) if isinstance(server, SharedQueue) else {}


def replica_load(server: Server) -> Load:
    """Return the load that replicas must serve: the server's load, or its cache misses (eq. 187)."""
    load, hit_rate = server.current.load, server.cache_hit_rate
    return thinned(load, 1 - hit_rate) if hit_rate else load
