"""Control-loop routes of a stateful service: send loads and get a plan, read or apply the last plan.

All loads are checked before any is stored. The plan is made from exactly the revision after storing them, and
is stored with that revision.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Body, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from optimizer.plan import Plan
from optimizer.spec.streams import planned_name, planned_names
from optimizer.stabilisation.decisions import Observation, ReplicaStatus
from optimizer.stabilisation.loads import LoadEstimate
from optimizer.stabilisation.missing_loads import MissingLoad
from optimizer.stabilisation.stabilise import denoise_loads
from rest_server.compat.answers import notice_headers
from rest_server.fleet import Entities, desired_allocations
from rest_server.state import NOTHING_SEEN, FleetStore, PlanRecord
from rest_server.v1.entities import Condition
from rest_server.v1.examples import LOADS
from rest_server.v1.load_updates import fleet_to_plan, load_update, missing_loads, with_updates
from rest_server.v1.models import (
    LastPlan,
    LoadsAnswer,
    LoadSnapshot,
    LoadUpdate,
    MissingLoadNote,
    ServerList,
)
from rest_server.v1.planning import server_timing
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, Precondition, RawRoute, held_fleet
from rest_server.v1.work import RunningFleet, plan_fleet, value_of

router = APIRouter(route_class=RawRoute, tags=["control loop"])


@router.post(
    "/loads",
    response_model=LoadsAnswer,
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

    A length of 0 that says nothing leaves the last length. `missingLoads` and `X-Inferplan-Missing` list the
    servers whose requests lack a length; they are planned for their last lengths. If these were never known,
    the server keeps its replicas, and gets at least one.
    """
    state, held = request.app.state, held_fleet(request)
    storing = _Storing(held, body, condition)
    text, stages_s = await state.workers.run(request, partial(plan_fleet, state.settings), storing)
    revision = await run_in_threadpool(_keep, held, text, storing)
    missing = [quote(name, safe="") for name in sorted(storing.missing)]
    headers = server_timing(stages_s) | {"ETag": held.etag(revision)} | notice_headers((), missing=missing)
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
    missing: Mapping[str, MissingLoad] = field(default_factory=dict)
    """What is missing in the loads, by server."""
    seen: Observation = NOTHING_SEEN
    """Missing loads and existing replicas."""
    estimates: Mapping[str, LoadEstimate] = field(default_factory=dict)
    """Estimates of the loads, by server."""

    def __call__(self) -> RunningFleet:
        entities = self.held.snapshot().entities
        loads = {name: load_update(entities, name, change) for name, change in value_of(self.body).items()}

        def store(entities: Entities) -> Entities:
            changed = with_updates(entities, loads)
            changed.system()
            return changed

        sent = {name for name, load in loads.items() if load.arrival_rate_rpm is not None}
        self.revision, stored = self.condition.update(self.held, store, "loads", sent)
        self.entities, self.loads = stored, loads
        return self._settled()

    def _settled(self) -> RunningFleet:
        """Return the fleet with the loads used for planning, without insignificant changes."""
        now = self.held.snapshot()
        self.missing = missing_loads(self.entities, self.loads, now.decisions)
        incomplete = {
            planned: item for name, item in self.missing.items() for planned in self._planned_names([name])
        }
        self.seen = Observation(time.time(), self._not_given(), self._replicas(), incomplete)
        to_plan = fleet_to_plan(self.entities, self.missing, now.decisions)
        system, self.estimates = denoise_loads(to_plan.loose_system(), now.rules, now.decisions, self.seen)
        notes = tuple(
            MissingLoadNote(server=name, values=item.values, detail=item.detail)
            for name, item in sorted(self.missing.items())
        )
        spec = to_plan.with_loads_of(system).spec()
        return RunningFleet(spec, now.rules, now.decisions, self.seen, notes)

    def _not_given(self) -> frozenset[str]:
        """Return the planned servers whose rates are not given, or cannot be planned.

        A shared queue needs the rates of all its servers, versions need the rate of their server, and servers
        of a route need the rate of the route.
        """
        given = {name for name, load in self.loads.items() if load.arrival_rate_rpm is not None}
        given -= {name for name, item in self.missing.items() if item.keeps_replicas}
        routed = self.entities.routed
        return self._planned_names(
            name for name in self.entities.servers if routed.get(name, name) not in given
        )

    def _planned_names(self, names: Iterable[str]) -> frozenset[str]:
        servers = self.entities.servers
        return frozenset(planned for name in names for planned in planned_names(servers[name]))

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


def _keep(held: FleetStore, text: bytes, stored: _Storing) -> int:
    """Store a plan as the last one and as the desired state, and return its revision."""
    plan = LoadsAnswer.model_validate_json(text).plan
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
    revision, entities = condition.update(held, lambda now: with_applied_plan(now, plan), "applied", ())
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
