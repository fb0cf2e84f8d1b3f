"""The control loop's routes of a stateful service: loads in and a plan out, the last plan, carried out.

A snapshot of loads is checked before any of it is stored; the plan is made from exactly the revision
that storing it gave, and kept with that revision.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from optimizer.errors import SpecError
from optimizer.plan import Plan
from optimizer.spec.assumptions import check_load
from optimizer.spec.messages import did_you_mean, path_text, validated
from optimizer.spec.schema import Load, Server, SystemSpec
from rest_server.errors import BodyError, field_path
from rest_server.state import Entities, HeldFleet, PlanRecord, desired_allocations
from rest_server.v1.entities import Condition, held_fleet
from rest_server.v1.examples import LOADS
from rest_server.v1.models import LastPlan, LoadChange, LoadSnapshot, ServerList
from rest_server.v1.planning import server_timing
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, Precondition, RawRoute
from rest_server.v1.work import plan_spec, value_of

MAX_SUGGESTED = 10_000
"""Most servers among whose names one is looked for that is meant."""
_Answer = TypeVar("_Answer")

router = APIRouter(route_class=RawRoute, tags=["control loop"])


@router.post(
    "/loads",
    response_model=Plan,
    summary="Store loads and plan again",
    responses=problems(408, 412, 422, 503, 504),
)
async def put_loads(
    request: Request,
    body: Annotated[bytes, JsonOf(LoadSnapshot), Body(openapi_examples=LOADS)],
    condition: Condition,
) -> Response:
    """Store a snapshot of loads by server, plan the fleet, and return the plan.

    What a load does not give stays as it is, and so do servers that are not named. If anything in it is
    wrong, or the fleet is no consistent system, nothing is stored. `ETag` is the revision after the plan.
    The loads are stored when planning begins: where no plan comes of it (500, 504), they stay, and the last
    plan stays the last.
    """
    state, held = request.app.state, held_fleet(request)
    storing = _Storing(held, body, condition)
    text, stages_s = await state.workers.run(request, partial(plan_spec, state.settings), storing)
    revision = await run_in_threadpool(_keep, held, text, storing)
    headers = server_timing(stages_s) | {"ETag": held.etag(revision)}
    return Response(text, media_type=JSON, headers=headers)


@dataclass(slots=True)
class _Storing:
    """Stores the loads of a body when it is called, and returns the fleet with them."""

    held: HeldFleet
    body: bytes
    condition: Precondition
    revision: int = 0
    """The revision that storing gave."""
    servers: Mapping[str, Server] = field(default_factory=dict)
    """The servers at that revision."""

    def __call__(self) -> SystemSpec:
        given = value_of(self.body)
        loads = {
            name: _of_body(name, partial(validated, LoadChange, change)) for name, change in given.items()
        }

        def store(entities: Entities) -> Entities:
            changed = with_loads(entities, loads)
            changed.system()
            return changed

        self.revision, stored = self.condition.update(self.held, store)
        self.servers = stored.servers
        return stored.spec()


def with_loads(entities: Entities, loads: Mapping[str, LoadChange]) -> Entities:
    """Return entities with other loads, by server.

    Raises:
        SpecError: a server does not exist, or its load makes no sense.
    """
    servers: dict[str, Server] = dict(entities.servers)
    for name, change in loads.items():
        if name not in servers:
            hint = did_you_mean(name, servers) if len(servers) <= MAX_SUGGESTED else ""
            raise BodyError(_place(name), f"server {name!r} does not exist{hint}")
        current = servers[name].current
        given: dict[str, Any] = change.model_dump(exclude_unset=True)
        load = _of_body(name, partial(_load, current.load.model_dump() | given))
        allocation = current.model_copy(update={"load": load})
        servers[name] = servers[name].model_copy(update={"current": allocation})
    return replace(entities, servers=servers)


def _place(name: str) -> str:
    return path_text([name]) or repr(name)


def _load(values: dict[str, Any]) -> Load:
    load = validated(Load, values)
    check_load(load, "")
    return load


def _of_body(name: str, work: Callable[[], _Answer]) -> _Answer:
    """Return what work gives; what it says is wrong is a field of the server's load in the body.

    Raises:
        BodyError: something is wrong.
    """
    try:
        return work()
    except SpecError as error:
        message, server = str(error), _place(name)
        field = field_path(message)
        if field is None:
            raise BodyError(server, message) from None
        raise BodyError(f"{server}.{field}", message.removeprefix(f"{field}: ")) from None


def _keep(held: HeldFleet, text: bytes, stored: _Storing) -> int:
    """Keep a plan as the last one and as what is desired; return the revision that it stands for."""
    plan = Plan.model_validate_json(text)
    return held.keep_plan(plan, desired_allocations(plan, stored.servers), stored.revision)


@router.get("/plan", response_model=LastPlan, summary="Read the last plan", responses=problems(404))
def read_plan(request: Request) -> Response:
    """Return the last plan, its `age` [s], and the `revision` of the fleet that it is for (also `ETag`)."""
    held = held_fleet(request)
    record = _last(held)
    age_s = max(0.0, time.time() - record.made_at)
    plan = LastPlan.model_construct(**dict(record.plan), age_s=round(age_s, 3), revision=record.revision)
    headers = {"ETag": held.etag(record.revision), "Age": str(int(age_s))}
    return Response(plan.to_json(), media_type=JSON, headers=headers)


def _last(held: HeldFleet) -> PlanRecord:
    record = held.plan
    if record is None:
        raise HTTPException(404, "no plan has been made yet; POST /v1/loads makes one")
    return record


@router.post(
    "/plan/apply",
    response_model=ServerList,
    summary="Take the last plan as carried out",
    responses=problems(404, 412, 422),
)
def apply_plan(request: Request, condition: Condition) -> Response:
    """Make what the last plan recommends the current allocation of its servers, and return all servers.

    Loads stay as they are, and so do servers that the plan does not know. With the plan's `ETag` in
    `If-Match` it is done only if nothing has changed since the plan was made.
    """
    held = held_fleet(request)
    plan = _last(held).plan
    revision, entities = condition.update(held, lambda now: applied(now, plan))
    servers = ServerList.model_construct(servers=tuple(entities.servers.values()))
    text = servers.model_dump_json(by_alias=True, indent=2)
    return Response(text, media_type=JSON, headers={"ETag": held.etag(revision)})


def applied(entities: Entities, plan: Plan) -> Entities:
    """Return entities whose servers run what a plan says, as far as it knows them."""
    known = plan.allocations.keys() | {item.server for item in plan.unserved}
    planned = {name: server for name, server in entities.servers.items() if name in known}
    alone = replace(entities, servers=planned).with_desired(desired_allocations(plan, planned))
    return replace(entities, servers={**entities.servers, **alone.with_desired_applied().servers})
