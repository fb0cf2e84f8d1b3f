"""Servers that share one queue are planned as one server, under the queue's name.

This server has the total load of its members and the mean request of their mix. Code that counts replicas,
cards, costs or changes treats it like any other server; only sizing, service levels and metrics of plans use
its members. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from pydantic import ConfigDict

from optimizer.arrays import grouped, sorted_by_key
from optimizer.kinds.request_shapes import MAX_SHAPES, RequestShape, mixed_lengths
from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.queueing.shapes import shape_number
from optimizer.schema import AllocationData, Load, ModelProfile, Server
from optimizer.schema.classes import FIELDS_OF_SERVERS
from optimizer.schema.names import Entry, Finding, Index
from optimizer.spec.feature import Documents
from optimizer.timing.static import is_static

MAX_MEMBERS = 6
"""Maximum number of servers that share a queue, because each subset of them is sized."""
_LENGTHS = (("in_tokens", "in_tokens_cv"), ("out_tokens", "out_tokens_cv"))
_EQUAL = (
    "max_batch_size",
    "min_num_replicas",
    "max_num_replicas",
    "keep_accelerator",
    "place",
    "may_serve_from",
    "accelerators",
    "preferred",
    "spare_replicas",
    "availability_target",
    "surge",
)
"""Fields about replicas, which must be equal for all servers of a queue."""


class SharedQueue(Server):
    """A shared queue as one server."""

    model_config = ConfigDict(defer_build=True)  # never validated

    members: tuple[Server, ...] = ()
    """The servers that share the queue, by descending priority."""

    def with_load(self, load: Load) -> Self:
        """Return a copy of the queue with another load, in which the members change in proportion."""
        now = self.current.load
        if now.shapes:  # shares and lengths of shapes are those of the members
            rate = load.arrival_rate_rpm / now.arrival_rate_rpm if now.arrival_rate_rpm else 1.0
            return self.only({one.name: rate * one.current.load.arrival_rate_rpm for one in self.members})
        factors = {
            name: getattr(load, name) / getattr(now, name) if getattr(now, name) else 1.0
            for name in ("arrival_rate_rpm", "in_tokens", "out_tokens")
        }
        changed = {
            name: getattr(load, name)
            for name in ("arrival_cv", "in_tokens_cv", "out_tokens_cv")
            if getattr(load, name) != getattr(now, name)
        }

        def scaled(member: Load) -> Load:
            values = {name: getattr(member, name) * factor for name, factor in factors.items()}
            return member.model_copy(update=values | changed)

        members = tuple(member.with_load(scaled(member.current.load)) for member in self.members)
        current = self.current.model_copy(update={"load": load})
        return self.model_copy(update={"members": members, "current": current})

    def only(self, loads_rpm: Mapping[str, float]) -> Self:
        """Return the queue with only the given members, at the given arrival rates [requests/min]."""
        kept = [
            part.with_load(part.current.load.model_copy(update={"arrival_rate_rpm": loads_rpm[part.name]}))
            for part in self.members
            if part.name in loads_rpm
        ]
        if not kept:
            return self.model_copy(update={"members": (), "min_num_replicas": 0, "current": _idle(self)})
        return self._of(kept)

    def _of(self, members: Sequence[Server]) -> Self:
        load = queue_load(members)
        current = self.current.model_copy(update={"load": load})
        return self.model_copy(update={"members": tuple(members), "current": current})


def _idle(server: Server) -> AllocationData:
    return server.current.model_copy(update={"load": Load()})


def mixed_load(loads: Sequence[Load]) -> Load:
    """Combine loads: add the rates, and average the lengths over all requests (eq. 174, 175)."""
    rate = sum(load.arrival_rate_rpm for load in loads)
    weights = [load.arrival_rate_rpm / rate if rate else 1 / len(loads) for load in loads]
    if len(loads) == 1:
        return loads[0]
    values: dict[str, float] = {"arrival_rate_rpm": rate}
    for name, cv_name in _LENGTHS:
        pairs = [(getattr(load, name), getattr(load, cv_name)) for load in loads]
        mean = sum(w * value for w, (value, _) in zip(weights, pairs, strict=True))
        square = sum(w * value**2 * (1 + cv**2) for w, (value, cv) in zip(weights, pairs, strict=True))
        alike = len(set(pairs)) == 1
        values[name] = pairs[0][0] if alike else mean
        values[cv_name] = pairs[0][1] if alike or not mean else max(square / mean**2 - 1, 0.0) ** 0.5
    cvs = [load.arrival_cv for load in loads]
    scv = sum(w * cv**2 for w, cv in zip(weights, cvs, strict=True))
    values["arrival_cv"] = cvs[0] if len(set(cvs)) == 1 else scv**0.5
    return Load().model_copy(update=values)


def queue_load(members: Sequence[Server]) -> Load:
    """Return the load of a shared queue: the mean request of its members, or the shapes of all.

    Means are enough if each member has one shape, without a prefix.
    """
    loads = [member.current.load for member in members]
    load = mixed_load(loads)
    if len(loads) == 1 or not any(map(_has_rows, loads)):
        return load
    shapes = tuple(
        _joint_shape(member, shape, load.arrival_rate_rpm, 1 / len(loads))
        for member in members
        for shape in member.current.load.stated_shapes
    )
    return load.model_copy(update={"shapes": shapes, **mixed_lengths(shapes)})


def _has_rows(load: Load) -> bool:
    """Return whether the requests of a load are more than one mean request."""
    return load.has_shapes and (len(load.rows()) > 1 or bool(load.rows()[0].cached))


def _joint_shape(member: Server, shape: Any, total_rpm: float, idle_share: float) -> RequestShape:
    """Return a shape of a member as a shape of its queue; a load without shapes is one.

    Args:
        member: the member.
        shape: its shape, or its load.
        total_rpm: arrival rate of the queue [requests/min].
        idle_share: share of each member if nothing arrives.
    """
    rate = member.current.load.arrival_rate_rpm
    own = shape.share or 0.0 if isinstance(shape, RequestShape) else 1.0
    common = {name: getattr(shape, name) for name in RequestShape.model_fields if name in Load.model_fields}
    return RequestShape.model_construct(
        **common | {"arrival_rate_rpm": None},
        name=_joint_name(member, shape),
        share=own * (rate / total_rpm if total_rpm else idle_share),
    )


def _joint_name(member: Server, shape: Any) -> str:
    return f"{member.name}/{shape.name}" if isinstance(shape, RequestShape) else member.name


def joint_numbers(queue: SharedQueue, member: Server) -> Mapping[int, int]:
    """Return the numbers of a member's request shapes, by their numbers in the load of the queue.

    The result is empty if the queue computes with the mean request of its members, or has only this one.
    """
    if len(queue.members) == 1 or not queue.current.load.shapes:
        return {}
    return {
        shape_number(_joint_name(member, shape)): shape_number(shape.name)
        if isinstance(shape, RequestShape)
        else 0
        for shape in member.current.load.stated_shapes
    }


def with_shared_queues(
    servers: Mapping[str, Server], priority_of: Callable[[Server], int]
) -> Mapping[str, Server]:
    """Return servers by name, with each shared queue as one server, sorted by name.

    Args:
        servers: the servers of a document, by name.
        priority_of: function that returns the priority of a server.
    """
    queues = _members(servers.values())
    if not queues:
        return servers
    planned = {name: server for name, server in servers.items() if server.shared_queue is None}
    for name, members in queues.items():
        order = sorted(members, key=lambda member: (priority_of(member), member.name))
        planned[name] = _queue(name, order)
    return sorted_by_key(planned)


def _queue(name: str, members: Sequence[Server]) -> SharedQueue:
    """Create a queue with the options of its first member, and the first current allocation of any member."""
    first = members[0]
    running = [member.current for member in members if member.current.stated_pools]
    load = queue_load(members)
    current = (running[0] if running else AllocationData()).model_copy(update={"load": load})
    values = {field: getattr(first, field) for field in Server.model_fields}
    values |= {"name": name, "shared_queue": None, "current": current, "desired": AllocationData()}
    return SharedQueue.model_construct(**values, members=tuple(members))


def as_served(
    servers: Mapping[str, Server], served_rpm: Mapping[str, Mapping[str, float]]
) -> Mapping[str, Server]:
    """Return all servers; shared queues and servers of routes have only the load that a plan serves.

    Args:
        servers: the planned servers, by name.
        served_rpm: served arrival rates [requests/min], by queue and member; routed servers are keyed by
            their name on both levels.
    """
    changed = {
        name: server.only(served_rpm.get(name, {}))
        if isinstance(server, SharedQueue)
        else server.with_load(
            server.current.load.model_copy(update={"arrival_rate_rpm": served_rpm[name][name]})
        )
        for name, server in servers.items()
        if isinstance(server, SharedQueue) or name in served_rpm
    }
    return MappingProxyType({**servers, **changed}) if changed else servers


def _members(servers: Iterable[Server]) -> dict[str, list[Server]]:
    return grouped((server.shared_queue, server) for server in servers if server.shared_queue is not None)


# --- checks --------------------------------------------------------------------------------------------


def queue_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the documents of servers that share a queue."""
    index, profiles = documents.index, documents.profiles
    entries = (entry for entry in index.servers.values() if entry.item.shared_queue is not None)
    queues = grouped((entry.item.shared_queue, entry) for entry in entries)
    for name, of_queue in queues.items():
        part, at, first = of_queue[0]
        here = (*at, "sharedQueue")
        if name in index.servers:
            yield Finding(part, here, f"{name!r} is also the name of a server; give the queue another name")
        shapes = sum(len(entry.item.current.load.stated_shapes) for entry in of_queue)
        if shapes > MAX_SHAPES and any(entry.item.current.load.shapes for entry in of_queue):
            text = f"{shapes} request shapes share {name!r}, at most {MAX_SHAPES} can; join some"
            yield Finding(part, here, text)
        if len(of_queue) > MAX_MEMBERS:
            text = f"{len(of_queue)} servers share {name!r}, at most {MAX_MEMBERS} can; divide them"
            yield Finding(*of_queue[MAX_MEMBERS][:2], text)
        for entry in of_queue:
            yield from _differences(entry, first, index)
            yield from _unsupported(entry, index, profiles.get(entry.item.model, ()))
        yield from _allocations(of_queue)


def _differences(entry: Entry, first: Server, index: Index) -> Iterator[Finding]:
    part, at, server = entry
    for field in ("model", *_EQUAL, *FIELDS_OF_SERVERS):
        of_class = field in FIELDS_OF_SERVERS
        own, other = (
            _stated(one, field, index) if of_class else getattr(one, field) for one in (server, first)
        )
        if own != other:
            where = ", stated for them or their classes" if of_class else ""
            yield Finding(
                part,
                (*at, Server.model_fields[field].alias or field),
                f"{_shown(own)}, but {first.name!r} in the same shared queue has {_shown(other)}; servers "
                f"that share replicas need the same{where}",
            )


def _stated(server: Server, field: str, index: Index) -> object:
    """Return the value of a field of a server; if it is unset, that of its service class."""
    own = getattr(server, field)
    if own is not None or server.service_class not in index.classes:
        return own
    return getattr(index.classes[server.service_class].item, field)


def _unsupported(entry: Entry, index: Index, profiles: Collection[ModelProfile]) -> Iterator[Finding]:
    """Yield an error for each setting of a server that a priority queue does not support."""
    part, at, server = entry
    if any(kind_of_profile(profile) is not KINDS[0] or is_static(profile) for profile in profiles):
        text = f"{server.model!r} is not batched continuously, which a shared queue needs; remove it"
        yield Finding(part, (*at, "sharedQueue"), text)
    known = index.classes.get(server.service_class)
    if known is None:
        return
    target = next((item for item in known.item.model_targets if item.model == server.model), None)
    if target is None:
        text = f"class {server.service_class!r} has no target for {server.model!r}; add one"
        yield Finding(part, (*at, "class"), text)
    elif target.tps:
        text = f"class {server.service_class!r} has slo-tps for {server.model!r}; "
        text += "remove it, because a shared queue needs an arrival rate"
        yield Finding(part, (*at, "class"), text)


def _allocations(entries: Sequence[Entry]) -> Iterator[Finding]:
    """Yield an error for each server of a queue whose current allocation differs from that of the first."""
    stated = [entry for entry in entries if entry.item.current.stated_pools]
    for part, at, server in stated[1:]:
        first = stated[0].item
        own, other = (_pools_text(one.current) for one in (server, first))
        if own != other:
            text = (
                f"{own}, but {first.name!r} in the same shared queue runs on {other}; state the "
                "replicas of the queue for one server only, or the same for all"
            )
            yield Finding(part, (*at, "currentAlloc"), text)


def _pools_text(current: AllocationData) -> str:
    return " and ".join(
        f"{pool.num_replicas} x {pool.accelerator} at {pool.cost_cents_per_h:g}"
        for pool in current.stated_pools
    )


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    return ", ".join(value) if isinstance(value, tuple) else str(value).lower()
