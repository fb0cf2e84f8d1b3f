"""Control-loop routes of a stateful service: send loads and get a plan, read or apply the last plan.

All loads are checked before any is stored. The plan is made from exactly the revision after storing them, and
is stored with that revision.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from optimizer.errors import SpecError
from optimizer.features.versions.streams import with_allocation
from optimizer.plan import Plan
from optimizer.schema import AllocationData, Load, Route, Server
from optimizer.schema.assumptions import check_load, lacks_lengths
from optimizer.schema.current_pools import with_replicas
from optimizer.schema.messages import did_you_mean, path_text, validated
from optimizer.spec.streams import planned_name, planned_names
from optimizer.stabilisation.decisions import Observation, ReplicaStatus
from optimizer.stabilisation.loads import LoadEstimate
from optimizer.stabilisation.stabilise import denoise_loads
from rest_server.compat.answers import notice_headers
from rest_server.errors import BodyError, field_path
from rest_server.fleet import Entities, desired_allocations
from rest_server.state import NOTHING_SEEN, FleetStore, PlanRecord
from rest_server.v1.entities import Condition
from rest_server.v1.examples import LOADS
from rest_server.v1.models import LastPlan, LoadSnapshot, LoadUpdate, ServerList
from rest_server.v1.planning import server_timing
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, Precondition, RawRoute, held_fleet
from rest_server.v1.work import RunningFleet, plan_fleet, value_of

MAX_SUGGESTED = 10_000
"""Maximum number of servers for which the error for an unknown server suggests a similar name."""

router = APIRouter(route_class=RawRoute, tags=["control loop"])


@router.post(
    "/loads",
    response_model=Plan,
    summary="Store loads and plan again",
    responses=problems(408, 412, 503, 504),
)
async def plan_loads(
    request: Request,
    body: Annotated[bytes, JsonOf(LoadSnapshot), Body(openapi_examples=LOADS)],
    condition: Condition,
) -> Response:
    """Store a snapshot of loads by server or route, plan the fleet, and return the plan.

    Omitted values, servers and routes keep their last values. Each request makes two revisions: one with the
    loads and, after planning, one with the plan, whose revision is `ETag`.

    If any value is invalid, or the fleet is not a consistent system, nothing is stored (4xx). If planning
    fails (500, 503, 504, 507) or the client disconnects, the loads can be stored, and the last plan remains.
    A request without `If-Match` can be sent again, because it states values and not differences.

    A load whose requests have no output length (`avgOutTokens` 0 or never given) or no input length
    (`avgInTokens` never given; 0 is valid) counts as missing: it is not stored, and `X-Inferplan-Missing`
    lists its server.
    """
    state, held = request.app.state, held_fleet(request)
    storing = _Storing(held, body, condition)
    text, stages_s = await state.workers.run(request, partial(plan_fleet, state.settings), storing)
    revision = await run_in_threadpool(_keep, held, text, storing)
    unusable = [quote(name, safe="") for name in sorted(storing.unusable)]
    headers = server_timing(stages_s) | {"ETag": held.etag(revision)} | notice_headers((), missing=unusable)
    return Response(text, media_type=JSON, headers=headers)


@dataclass(slots=True)
class _Storing:
    """Function that stores the loads of a body, and returns the fleet with these loads."""

    held: FleetStore
    body: bytes
    condition: Precondition
    revision: int = 0
    """Revision of the fleet after storing the loads."""
    entities: Entities = field(default_factory=Entities)
    """Items of the fleet after storing the loads."""
    loads: Mapping[str, LoadUpdate] = field(default_factory=dict)
    """Load updates in the body, by server."""
    unusable: frozenset[str] = frozenset()
    """Servers whose requests lack a token length, so that their loads count as missing."""
    seen: Observation = NOTHING_SEEN
    """Missing loads and existing replicas."""
    estimates: Mapping[str, LoadEstimate] = field(default_factory=dict)
    """Estimates of the loads, by server."""

    def __call__(self) -> RunningFleet:
        loads = {name: self._update(name, change) for name, change in value_of(self.body).items()}

        def store(entities: Entities) -> Entities:
            changed, self.unusable = with_updates(entities, loads)
            changed.system()
            return changed

        self.revision, stored = self.condition.update(self.held, store, "loads")
        self.entities, self.loads = stored, loads
        return self._settled(stored)

    def _update(self, name: str, change: object) -> LoadUpdate:
        """Validate the load update of one server.

        Raises:
            BodyError: a value is invalid, or the server does not exist, which is reported first.
        """
        try:
            with _in_body(name):
                return validated(LoadUpdate, change)
        except BodyError:
            entities = self.held.snapshot().entities
            if name not in {*entities.owners, *entities.planned}:
                raise _unknown_server(entities, name) from None
            raise

    def _settled(self, stored: Entities) -> RunningFleet:
        """Return the fleet with the loads used for planning, without insignificant changes."""
        now, unusable = self.held.snapshot(), _planned_names(self.entities, self.unusable)
        self.seen = Observation(time.time(), self._missing(), self._replicas(), unusable)
        system, self.estimates = denoise_loads(stored.loose_system(), now.rules, now.decisions, self.seen)
        return RunningFleet(stored.with_loads_of(system).spec(), now.rules, now.decisions, self.seen)

    def _missing(self) -> frozenset[str]:
        """Return the planned servers whose rates are missing or cannot be planned.

        A shared queue needs the rates of all its servers, versions need the rate of their server, and servers
        of a route need the rate of the route.
        """
        given = {name for name, load in self.loads.items() if load.arrival_rate_rpm is not None}
        given, routed = given - self.unusable, self.entities.routed
        names = (name for name in self.entities.servers if routed.get(name, name) not in given)
        return _planned_names(self.entities, names)

    def _replicas(self) -> dict[str, dict[str, ReplicaStatus]]:
        """Return the reported replicas, by planned server and accelerator."""
        servers = self.entities.servers
        return {
            planned_name(servers[name]) if name in servers else name: {
                acc: ReplicaStatus(there.ready, there.pending) for acc, there in change.replicas.items()
            }
            for name, change in self.loads.items()
            if change.replicas is not None
        }


def with_updates(entities: Entities, loads: Mapping[str, LoadUpdate]) -> tuple[Entities, frozenset[str]]:
    """Return a fleet with new loads by server, and the servers whose requests lack a token length.

    Loads without token lengths are not stored.

    Raises:
        SpecError: a server does not exist, or its load is invalid.
    """
    servers: dict[str, Server] = dict(entities.servers)
    routed: dict[str, Route] = {}
    unusable: set[str] = set()
    for name, change in loads.items():
        owner = entities.owners.get(name)
        if isinstance(owner, Route):
            routed[name] = _routed(entities, owner, change)
            continue
        _check_has_load(entities, name, change)
        if name not in servers and (whole := _split_server(servers, name, change)):
            allocation = _running(entities, name, entities.planned[name].current, change)
            servers[whole] = with_allocation(servers[whole], name, allocation)
            continue
        if name not in servers:
            raise _unknown_server(entities, name)
        current = servers[name].current
        given: dict[str, Any] = change.model_dump(exclude_none=True, exclude={"replicas"})
        with _in_body(name):
            load = validated(Load, current.load.model_dump(exclude_unset=True) | given)
            check_load(load, "")
        if lacks_lengths(load, entities.profiles_of(servers[name].model)):
            unusable.add(name)
            load = current.load
        allocation = _running(entities, name, current, change).model_copy(update={"load": load})
        servers[name] = servers[name].model_copy(update={"current": allocation})
        if change.replicas is not None and servers[name].shared_queue is not None:
            servers |= _sharing(servers, servers[name])
    unusable |= {
        name
        for name, server in servers.items()
        if lacks_lengths(server.current.load, entities.profiles_of(server.model))
    }
    return replace(entities, servers=servers).with_items("routes", routed), frozenset(unusable)


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


def _planned_names(entities: Entities, names: Iterable[str]) -> frozenset[str]:
    return frozenset(planned for name in names for planned in planned_names(entities.servers[name]))


def _split_server(servers: Mapping[str, Server], name: str, change: LoadUpdate) -> str | None:
    """Return the name of the server that has a version of this name; None if there is none.

    Raises:
        BodyError: a load is stated for the version.
    """
    whole = next((w for w, one in servers.items() if one.split and name in planned_names(one)), None)
    if whole is not None and change.model_dump(exclude_none=True, exclude={"replicas"}):
        raise BodyError(_place(name), f"its load is a share of the load of {whole!r}; give that")
    return whole


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


def _keep(held: FleetStore, text: bytes, stored: _Storing) -> int:
    """Store a plan as the last one and as the desired state, and return its revision."""
    plan = Plan.model_validate_json(text)
    desired = desired_allocations(plan, stored.entities.servers)
    return held.keep_plan(plan, desired, stored.revision, stored.seen, stored.estimates)


@router.get("/plan", response_model=LastPlan, summary="Read the last plan", responses=problems(404))
def read_plan(request: Request) -> Response:
    """Return the last plan, its `age` [s], and the `revision` of the fleet it was made for (also `ETag`)."""
    held = held_fleet(request)
    record = _last(held)
    age_s = max(0.0, time.time() - record.made_at)
    plan = LastPlan.model_construct(**dict(record.plan), age_s=round(age_s, 3), revision=record.revision)
    headers = {"ETag": held.etag(record.revision), "Age": str(int(age_s))}
    return Response(plan.to_json(), media_type=JSON, headers=headers)


def _last(held: FleetStore) -> PlanRecord:
    record = held.plan
    if record is None:
        raise HTTPException(404, "no plan has been made yet; POST /v1/loads makes one")
    return record


@router.post(
    "/plan/apply",
    response_model=ServerList,
    summary="Apply the last plan",
    responses=problems(404, 412),
)
def apply_plan(request: Request, condition: Condition) -> Response:
    """Make the allocations of the last plan the current ones, and return all servers.

    Loads do not change, nor do servers that are not in the plan. Unserved servers keep their replicas, and
    are listed in `X-Inferplan-Unserved`. With the plan's `ETag` in `If-Match`, the plan is applied only if
    nothing has changed since it was made.
    """
    held = held_fleet(request)
    plan = _last(held).plan
    served = {*plan.allocations, *plan.group_of}
    unserved = [quote(item.server, safe="") for item in plan.unserved if item.server not in served]
    revision, entities = condition.update(held, lambda now: with_applied_plan(now, plan), "applied")
    servers = ServerList.model_construct(servers=tuple(entities.servers.values()))
    text = servers.to_json()
    headers = {"ETag": held.etag(revision)} | notice_headers((), unserved=unserved)
    return Response(text, media_type=JSON, headers=headers)


def with_applied_plan(entities: Entities, plan: Plan) -> Entities:
    """Return a fleet in which a plan is the current allocation of the servers that it serves."""
    known = plan.allocations.keys() | {item.server for item in plan.unserved} | plan.queued_servers
    planned = {
        name: server
        for name, server in entities.servers.items()
        if name in known or known.intersection(planned_names(server))
    }
    alone = replace(entities, servers=planned).with_desired(desired_allocations(plan, planned))
    return replace(entities, servers={**entities.servers, **alone.with_desired_applied().servers})
