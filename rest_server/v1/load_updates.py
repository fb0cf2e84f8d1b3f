"""Updates of loads in a snapshot: the fleet with the new loads, and the loads of which a part is missing."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from optimizer.errors import SpecError
from optimizer.features.disaggregation.streams import with_role_names
from optimizer.schema import AllocationData, Load, Route, Server
from optimizer.schema.assumptions import check_load
from optimizer.schema.current_pools import with_replicas
from optimizer.schema.messages import did_you_mean, path_text, validated
from optimizer.spec.shapes import reshaped
from optimizer.spec.streams import planned_names, with_allocations
from optimizer.stabilisation.decisions import Decisions
from optimizer.stabilisation.missing_loads import (
    MissingLoad,
    merged_load,
    missing_values,
    with_lengths,
    with_one_replica,
)
from rest_server.errors import BodyError, field_path
from rest_server.fleet import Entities
from rest_server.v1.models import LoadUpdate, ShapeUpdate

MAX_SUGGESTED = 10_000
"""Maximum number of servers for which the error for an unknown server suggests a similar name."""


def load_update(entities: Entities, name: str, change: object) -> LoadUpdate:
    """Validate the load update of one server.

    Raises:
        BodyError: a value is invalid, or the server does not exist, which is reported first.
    """
    try:
        with _in_body(name):
            return validated(LoadUpdate, change)
    except BodyError:
        if name not in {*entities.owners, *entities.planned_by_role}:
            raise _unknown_server(entities, name) from None
        raise


def with_updates(entities: Entities, loads: Mapping[str, LoadUpdate]) -> Entities:
    """Return a fleet with new loads by server; values that say nothing leave the last ones (docs/rest.md).

    Raises:
        SpecError: a server does not exist, or its load is invalid.
    """
    servers: dict[str, Server] = dict(entities.servers)
    routed: dict[str, Route] = {}
    for name, change in loads.items():
        owner = entities.owners.get(name)
        if isinstance(owner, Route):
            routed[name] = _routed(entities, owner, change)
            continue
        _check_has_load(entities, name, change)
        if name not in servers and (whole := _whole_of(servers, name, change)):
            now = _by_role(servers[whole]) or {name: entities.planned_by_role[name].current}
            own = {name: _running(entities, name, now[name], change)}
            servers[whole] = with_allocations(servers[whole], now | own)
            continue
        if name not in servers:
            raise _unknown_server(entities, name)
        current, given = servers[name].current, _given(change)
        with _in_body(name):
            load = with_reported_shapes(current.load, change.shapes or {})
            load = merged_load(load, given) if given else load
            check_load(load, "")
        allocation = _running(entities, name, current, change).model_copy(update={"load": load})
        if change.replicas is not None and (now := _by_role(servers[name])):
            every = now | {name: _running(entities, name, now[name], change)}
            by_role = with_allocations(servers[name], every).current
            allocation = by_role.model_copy(update={"load": load})
        servers[name] = servers[name].model_copy(update={"current": allocation})
        if change.replicas is not None and servers[name].shared_queue is not None:
            servers |= _sharing(servers, servers[name])
    return replace(entities, servers=servers).with_items("routes", routed)


def _given(change: LoadUpdate) -> dict[str, Any]:
    return change.model_dump(exclude_none=True, exclude={"replicas", "shapes"})


def with_reported_shapes(load: Load, shapes: Mapping[str, ShapeUpdate]) -> Load:
    """Return a load with reported shares and hit rates of its request shapes.

    Raises:
        SpecError: a shape does not exist, or the shapes contradict each other.
    """
    known = [shape.name for shape in load.shapes]
    for name in shapes:
        if name not in known:
            text = f"the load has no shape {name!r}{did_you_mean(name, known)}"
            raise SpecError(f"shapes.{name}: {text}")
    if not shapes:
        return load
    changes = {name: shape.model_dump(exclude_none=True) for name, shape in shapes.items()}
    return reshaped(
        load, (shape.model_dump(exclude_unset=True) | changes.get(shape.name, {}) for shape in load.shapes)
    )


def missing_loads(
    entities: Entities, loads: Mapping[str, LoadUpdate], decisions: Decisions | None
) -> dict[str, MissingLoad]:
    """Return what is missing in the loads of servers after an update, by server.

    Args:
        entities: the fleet after the update.
        loads: the load updates, by server.
        decisions: the last decisions, if any.
    """
    known, result = {} if decisions is None else decisions.servers, {}
    for name, server in entities.servers.items():
        if name in entities.routed or server.deadline is not None:
            continue
        runs = bool(server.current.replicas) or any(
            known[planned].replicas for planned in planned_names(server) if planned in known
        )
        given = _given(loads[name]) if name in loads else None
        load = with_last_lengths(server, decisions)
        item = missing_values(load, given, entities.profiles_of(server.model), runs=runs)
        if item is not None:
            result[name] = item
    return result


def with_last_lengths(server: Server, decisions: Decisions | None) -> Load:
    """Return the load of a server, with the lengths of the last decision if those of the load are unknown."""
    load = server.current.load
    last = None if decisions is None else decisions.servers.get(server.name)
    return load if last is None else with_lengths(load, last.in_tokens, last.out_tokens)


def fleet_to_plan(
    entities: Entities, missing: Mapping[str, MissingLoad], decisions: Decisions | None
) -> Entities:
    """Return the fleet in which servers with incomplete loads can be planned (docs/rest.md).

    Args:
        entities: the fleet.
        missing: what is missing in the loads, by server.
        decisions: the last decisions, if any.
    """
    servers = {
        name: server.with_load(with_last_lengths(server, decisions))
        for name, server in entities.servers.items()
    }
    for name, item in missing.items():
        if item.keeps_replicas:
            queue = servers[name].shared_queue
            together = [one for one, server in servers.items() if queue and server.shared_queue == queue]
            servers |= {one: with_one_replica(servers[one]) for one in (name, *together)}
            servers[name] = servers[name].with_load(Load())
    return replace(entities, servers=servers)


def _unknown_server(entities: Entities, name: str) -> BodyError:
    """Return the error for the load of a server that does not exist, with advice on the form of the body."""
    known = [*entities.owners]
    hint = did_you_mean(name, known) if len(known) <= MAX_SUGGESTED else ""
    if not known:
        hint = "; the fleet has no servers: PUT /v1/fleet first"
    elif not hint:
        hint = f'; the body names servers, as in {{{json.dumps(known[0])}: {{"arrivalRate": 60}}}}'
    return BodyError(_place(name), f"server {name!r} does not exist{hint}")


def _routed(entities: Entities, route: Route, change: LoadUpdate) -> Route:
    """Return a route with a new arrival rate.

    Raises:
        BodyError: a value other than a rate is given, or a server has the same name.
    """
    name, rate_rpm = route.name, change.arrival_rate_rpm
    if name in entities.servers:
        raise BodyError(_place(name), f"{name!r} is the name of a server and of a route; rename one of them")
    for field_name in change.model_fields_set - {"arrival_rate_rpm"}:
        alias = LoadUpdate.model_fields[field_name].alias or field_name
        raise BodyError(f"{_place(name)}.{alias}", "a route has an arrivalRate only; remove it")
    return route if rate_rpm is None else route.model_copy(update={"arrival_rate_rpm": rate_rpm})


def _check_has_load(entities: Entities, name: str, change: LoadUpdate) -> None:
    """Check that a load is not stated for a server that gets its load from a route.

    Raises:
        BodyError: the server gets its load from a route.
    """
    route = entities.routed.get(name)
    if route is not None and change.model_dump(exclude_none=True, exclude={"replicas"}):
        text = f"server {name!r} gets its load from route {route!r}; give the load of that route"
        raise BodyError(_place(name), text)


def _sharing(servers: Mapping[str, Server], one: Server) -> dict[str, Server]:
    """Return the servers that share a server's queue, with the replicas reported for that server."""
    return {
        name: server.model_copy(
            update={"current": one.current.model_copy(update={"load": server.current.load})}
        )
        for name, server in servers.items()
        if server.shared_queue == one.shared_queue
    }


def _whole_of(servers: Mapping[str, Server], name: str, change: LoadUpdate) -> str | None:
    """Return the name of the server that has a version or a pool of this name; None if there is none.

    Raises:
        BodyError: a load is stated for the version or pool.
    """
    wholes = (w for w, one in servers.items() if one.split or one.disaggregation)
    whole = next((w for w in wholes if name in planned_names(servers[w])), None)
    if whole is not None and change.model_dump(exclude_none=True, exclude={"replicas"}):
        raise BodyError(_place(name), f"its load is a share of the load of {whole!r}; give that")
    return whole


def _by_role(server: Server) -> dict[str, AllocationData]:
    """Return what a server runs now by the names of its pools by role; empty if it has none."""
    if server.disaggregation is None:
        return {}
    return {name: one.current for name, one in with_role_names({server.name: server}).items()}


def _running(entities: Entities, name: str, current: AllocationData, change: LoadUpdate) -> AllocationData:
    """Return the current allocation of a server with the reported replicas."""
    replicas = change.replicas
    if replicas is None:
        return current
    for accelerator in replicas:
        if accelerator not in entities.accelerators:
            hint = did_you_mean(accelerator, entities.accelerators)
            place = f"{_place(name)}.replicas.{_place(accelerator)}"
            raise BodyError(place, f"accelerator {accelerator!r} does not exist{hint}")
    numbers = {accelerator: there.ready + there.pending for accelerator, there in replicas.items()}
    return with_replicas(current, numbers, mixed=entities.optimizer.heterogeneous)


def _place(name: str) -> str:
    return path_text([name]) or repr(name)


@contextmanager
def _in_body(name: str) -> Iterator[None]:
    """Context that changes the paths in errors to the path of the server's load in the body.

    Raises:
        BodyError: the work failed because of a value in the body.
    """
    try:
        yield
    except SpecError as error:
        message, server = str(error), _place(name)
        field = field_path(message)
        if field is None:
            raise BodyError(server, message) from None
        raise BodyError(f"{server}.{field}", message.removeprefix(f"{field}: ")) from None
