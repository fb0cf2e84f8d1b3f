"""Who is served: the streams of requests of a system, each served or unserved on its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optimizer.features.caches.streams import thinned
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.features.versions.streams import Version, version_name, versions_of
from optimizer.schema import Load, Server


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one server, member of a shared queue, or version."""

    name: str
    """Name in plans: of the server, the member, or the version."""
    owner: str
    """Server of the document that states its load."""
    group: str
    """Planned server whose replicas serve it: itself, or its shared queue."""
    server: Server
    """Its settings, with its own load."""
    priority: int
    """Priority of its class; offline work ranks last."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and service class."""
        return self.server.model, self.server.service_class

    @property
    def load(self) -> Load:
        """Load of its replicas, without cache hits."""
        return replica_load(self.server)


def streams_of(servers: Mapping[str, Server], priority_of: Callable[[Server], int]) -> dict[str, Stream]:
    """Return the streams of planned servers, sorted by name.

    Args:
        servers: servers in planned form, by name.
        priority_of: returns the priority of a server.
    """
    found = {
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
    return {name: found[name] for name in sorted(found)}


def has_members(server: Server) -> bool:
    """Return whether a planned server is several servers that share its replicas."""
    return isinstance(server, SharedQueue)


def owner_of(server: Server) -> str:
    """Return the name of the server of the document to which a planned server belongs, or of the queue."""
    return server.whole.name if isinstance(server, Version) else server.name


def planned_names(server: Server) -> tuple[str, ...]:
    """Return the names under which a document's server is planned: queue, versions, or its own name."""
    versions = tuple(version.name for version in versions_of(server))
    return versions or (server.shared_queue or server.name,)


def planned_name(server: Server) -> str:
    """Return the name under which the server's own model is planned."""
    return version_name(server, server.model) if server.split else server.shared_queue or server.name


def members_of(server: Server) -> tuple[Server, ...]:
    """Return a planned server's members with their loads: itself, or the servers of a queue."""
    return server.parts if isinstance(server, SharedQueue) else (server,)


def replica_load(server: Server) -> Load:
    """Return the load of a server's replicas: its own load, or the misses of its cache (eq. 187)."""
    load, hit_rate = server.current.load, server.cache_hit_rate
    return thinned(load, 1 - hit_rate) if hit_rate else load
