"""Plans a split server as one server for each version (math.md section 30).

Planning treats versions like any other servers. Documents, loads and the REST service use the server's name;
plans use the names of its versions, such as ``chat (v2)``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Any

from pydantic import ConfigDict

from optimizer.arrays import sorted_by_key
from optimizer.documents import MIN_RATE
from optimizer.errors import SpecError
from optimizer.features.caches.streams import thinned
from optimizer.features.versions.fields import VersionShare
from optimizer.schema import AllocationData, Load, ModelProfile, ModelTarget, Server
from optimizer.schema.assumptions import check_lengths, check_server, check_target, check_variability
from optimizer.schema.current_pools import pool_problems, undefined_accelerators
from optimizer.schema.names import Entry, Finding, Index
from optimizer.spec.feature import Documents
from optimizer.tolerances import ROUNDING

_OF_EACH = ("name", "model", "split", "roll_back", "current", "desired")
"""Fields that can differ between a version and its server."""


class Version(Server):
    """A version of a split server, as a planned server with its share of the load."""

    model_config = ConfigDict(defer_build=True)  # never validated

    whole: Server
    """The split server, with the total load."""
    weight: float
    """Share of the load that the version gets."""

    @property
    def is_main(self) -> bool:
        """Whether the version is the server's own `model`."""
        return self.model == self.whole.model


def version_name(server: Server, model: str) -> str:
    """Return the name of a server's version in plans."""
    return f"{server.name} ({model})"


def versions_of(server: Server) -> tuple[Version, ...]:
    """Return the versions of a server, in document order; empty if it is not split (eq. 212)."""
    versions = []
    common = {field: getattr(server, field) for field in Server.model_fields if field not in _OF_EACH}
    for share in server.split or ():
        load = thinned(server.current.load, share.weight)
        if load.arrival_rate_rpm < MIN_RATE:
            load = load.model_copy(update={"arrival_rate_rpm": 0.0})
        is_main = share.model == server.model
        if is_main and server.roll_back:  # in a roll-back it takes all arriving requests
            load = load.model_copy(
                update={"arrival_cv": max(load.arrival_cv, server.current.load.arrival_cv)}
            )
        current = server.current if is_main else share.current or AllocationData()
        own: dict[str, Any] = {
            "name": version_name(server, share.model),
            "model": share.model,
            "split": None,
            "roll_back": is_main and server.roll_back,
            "current": current.model_copy(update={"load": load}),
            "desired": AllocationData(),
        }
        versions.append(Version.model_construct(**common, **own, whole=server, weight=share.weight))
    return tuple(versions)


def with_versions(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return servers by name, with split servers replaced by their versions, sorted by name."""
    if not any(server.split for server in servers.values()):
        return servers
    parts = {part.name: part for server in servers.values() for part in (versions_of(server) or (server,))}
    return sorted_by_key(parts)


def as_separate(servers: Mapping[str, Server]) -> Mapping[str, Server]:
    """Return servers by name, with versions as ordinary servers that belong to no split server."""
    return {
        name: Server.model_construct(**dict(one)) if isinstance(one, Version) else one
        for name, one in servers.items()
    }


def share_of_load(server: Server) -> float:
    """Return a version's share of its server's load; 1 for other servers, or if the share is 0."""
    return server.weight or 1.0 if isinstance(server, Version) else 1.0


def whole_load(server: Server) -> Load:
    """Return the load that is counted for a server; for a version, that of all versions together."""
    return server.whole.current.load if isinstance(server, Version) else server.current.load


def with_allocation(server: Server, name: str, allocation: AllocationData, field: str = "current") -> Server:
    """Return the server with a different current or desired allocation and the same load.

    Args:
        server: a server of a document.
        name: name of the server, or of one of its versions.
        allocation: the new allocation.
        field: the allocation to replace: ``current`` or ``desired``.
    """
    if not server.split or name in {server.name, version_name(server, server.model)}:
        load = server.current.load if field == "current" else allocation.load
        return server.model_copy(update={field: allocation.model_copy(update={"load": load})})
    own = allocation.model_copy(update={"load": Load()})
    shares = tuple(
        share.model_copy(update={field: own}) if version_name(server, share.model) == name else share
        for share in server.split
    )
    return server.model_copy(update={"split": shares})


def with_desired_applied(server: Server) -> Server:
    """Return the server with desired allocations, including those of versions, as current ones."""
    current = server.desired.model_copy(update={"load": server.current.load})
    changes: dict[str, Any] = {"current": current}
    if server.split:
        changes["split"] = tuple(
            share.model_copy(update={"current": share.desired}) if share.desired else share
            for share in server.split
        )
    return server.model_copy(update=changes)


def with_roll_back(server: Server, share: float) -> float:
    """Return the headroom `share`, raised if a roll-back must be able to take all load (eq. 213)."""
    if isinstance(server, Version) and server.roll_back and server.weight:
        return (1 + share) / server.weight - 1
    return share


def target_key(version: Version, targets: Mapping[tuple[str, str], ModelTarget]) -> tuple[str, str]:
    """Return the service class and model whose targets apply to a version.

    If its model has no targets in the class, they are those of the server's own model.
    """
    own = version.service_class, version.model
    return own if own in targets else (version.service_class, version.whole.model)


def target_of_version(target: ModelTarget, version: Version) -> ModelTarget:
    """Return the targets of a version: equal latencies, and its share of the throughput target."""
    return target.model_copy(update={"model": version.model, "tps": target.tps * version.weight})


# --- checks --------------------------------------------------------------------------------------------


def version_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the documents of split servers."""
    index, names, optional = documents.index, documents.names, documents.lengths_optional
    taken = {entry.item.shared_queue: "a shared queue" for entry in index.servers.values()}
    taken |= dict.fromkeys(index.servers, "a server")
    for entry in index.servers.values():
        part, at, server = entry
        for path, text in _faults(server):
            yield Finding(part, (*at, *path), text)
        for i, share in enumerate(server.split or ()):
            here, name = (*at, "split", i), version_name(server, share.model)
            if name in taken:
                text = f"its version would be named {name!r}, which is {taken[name]}; rename that"
                yield Finding(part, (*here, "model"), text)
            yield from names["models"].missing(part, (*here, "model"), share.model)
            if share.current is not None:
                current = (*here, "currentAlloc")
                yield from pool_problems(part, current, share.current, names["nodes"])
                yield from undefined_accelerators(part, current, share.current, names["accelerators"])
            if share.model != server.model:
                of_model = documents.profiles.get(share.model, ())
                yield from _of_profiles(entry, i, index, of_model, optional)
        taken |= {version_name(server, share.model): "another version" for share in server.split or ()}


def _of_profiles(
    entry: Entry,
    i: int,
    index: Index,
    profiles: Sequence[ModelProfile],
    lengths_optional: bool,  # noqa: FBT001  passed by position
) -> Iterator[Finding]:
    """Yield an error for each setting of a server that the profiles of a version do not support."""
    part, at, server = entry
    share = server.split[i]
    one = server.model_copy(update={"model": share.model})
    load, place = server.current.load, "currentAlloc.load."
    checks: list[Callable[[], None]] = [
        partial(check_server, one, "", profiles),
        partial(check_variability, load, place, profiles),
    ]
    checks += [] if lengths_optional else [partial(check_lengths, load, place, profiles)]
    known = index.classes.get(server.service_class)
    targets = {target.model: target for target in known.item.model_targets} if known else {}
    if server.model in targets and share.model not in targets:
        here = f"the targets of {server.model!r} in class {server.service_class!r}"
        checks.append(partial(check_target, targets[server.model], here, profiles))
    for check in checks:
        try:
            check()
        except SpecError as error:
            yield Finding(part, (*at, "split", i, "model"), str(error))


def _faults(server: Server) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and message of each contradiction within a server's split."""
    if not server.split:
        if server.split is not None:
            yield ("split",), "the list is empty; give each version a model and a weight, or remove it"
        if server.roll_back:
            yield ("rollBack",), "the server has no versions to roll back from; remove it, or add split"
        return
    yield from _weight_faults(server, server.split)
    for i, share in enumerate(server.split):
        here = ("split", i, "currentAlloc")
        if share.current is not None and share.model == server.model:
            yield here, f"{share.model!r} is the server's own model; state it in the server's currentAlloc"
        if share.current is not None and share.current.load != Load():
            yield (*here, "load"), "the load of a version follows from its weight; remove it"


def _weight_faults(
    server: Server, split: Sequence[VersionShare]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    weights = {share.model: share.weight for share in split}
    for i, share in enumerate(split):
        if any(share.model == other.model for other in split[:i]):
            yield ("split", i, "model"), f"{share.model!r} occurs twice; list it once"
    total = fsum(share.weight for share in split)
    if abs(total - 1) > ROUNDING:
        yield ("split",), f"the weights sum to {total:.12g}, not 1; change them"
    if server.model not in weights:
        text = (
            f"{server.model!r}, the server's own model, is missing; add it, with weight 0 if it gets nothing"
        )
        yield ("split",), text
    elif server.roll_back and not weights[server.model]:
        text = f"{server.model!r} has weight 0 and no replicas; give it a weight above 0"
        yield ("rollBack",), text
