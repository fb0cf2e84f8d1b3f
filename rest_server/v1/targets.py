"""Routes for autoscalers: the desired replicas of every server on every accelerator, with reasons.

Requests never compute a plan or wait for one. Responses come from the last plan, and are errors if it is too
old. The autoscaler then decides what to do (KEDA: `fallback`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from optimizer.features.disaggregation.streams import owner_of_role, role_names
from optimizer.features.shared_cards.view import SHARED_NAME
from optimizer.schema import Server
from optimizer.spec.streams import planned_names
from optimizer.stabilisation.decisions import ReplicaTarget, TargetReason
from rest_server.fleet import Entities, Key
from rest_server.load_ages import SentAt, age_s
from rest_server.state import FleetStore, Snapshot
from rest_server.v1.entity_types import NameInPath, by_model
from rest_server.v1.models import TargetAnswer, TargetList
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, RawRoute, held_fleet

RETRY_S = 15
"""Time after which a client should try again if there is no target [s]; about the polling interval of
autoscalers.
"""
State = Literal["no plan", "stale", "unknown"]

router = APIRouter(route_class=RawRoute, tags=["control loop"])


def server_and_accelerator(request: Request, server: NameInPath, accelerator: NameInPath) -> Key:
    """Return the server and the accelerator in a path; a slash inside a name is written ``%2F``."""
    return by_model(request, server, accelerator)


@dataclass(frozen=True, slots=True)
class TargetState:
    """Desired and existing replicas of a server on an accelerator."""

    server: str
    accelerator: str
    target: ReplicaTarget
    current: int
    """Number of existing replicas as last reported, or else in the current allocation."""
    load_sent_at: float | None = None
    """Time at which the load was last sent [s since the epoch]; None for shared cards and offline work."""

    def is_stale(self, stale_after_s: float) -> bool:
        """Return whether the load is too old to follow the target."""
        return self.load_sent_at is not None and time.time() - self.load_sent_at > stale_after_s


async def current_snapshot(held: FleetStore) -> Snapshot:
    """Return the current snapshot of the fleet, building the fleet in a thread if necessary."""
    return held.snapshot() if held.is_built else await run_in_threadpool(held.snapshot)


def unavailable_reason(now: Snapshot, stale_after_s: float) -> str | None:
    """Return the reason why no targets are valid; None if they are valid."""
    if now.plan is None or now.decisions is None:
        return "no plan has been made yet; POST /v1/loads makes one"
    age_s = time.time() - now.plan.made_at
    if age_s > stale_after_s:
        return f"the last plan is {age_s:.0f} s old, over the limit of {stale_after_s:g} s; plan again"
    return None


def accelerators_of(entities: Entities, server: Server, now: Snapshot) -> dict[str, None]:
    """Return the accelerators that a server can use, and those on which it has replicas, as keys."""
    profiles = entities.models.get(server.model, {})
    allowed = profiles if server.accelerators is None else server.accelerators
    accelerators = {name: None for name in profiles if name in allowed and name in entities.accelerators}
    accelerators |= dict.fromkeys(server.current.replicas)
    decision = None if now.decisions is None else now.decisions.servers.get(server.name)
    return accelerators | dict.fromkeys(decision.targets if decision is not None else ())


def reading(now: Snapshot, server: Server, accelerator: str, times: SentAt) -> TargetState | None:
    """Return the state of a target; None if the last plan does not contain the server.

    Args:
        now: the current state of the fleet.
        server: the planned server.
        times: time at which the load of each planned server was last sent [s since the epoch].
    """
    known = {} if now.decisions is None else now.decisions.servers
    together = role_names(now.entities.servers.get(owner_of_role(server), server))
    if server.name not in known and known.keys().isdisjoint(together):
        return None
    targets = known[server.name].targets if server.name in known else {}
    target = targets.get(accelerator) or ReplicaTarget(0, TargetReason.not_chosen)
    current = current_replicas(now, server, accelerator)
    return TargetState(server.name, accelerator, target, current, times.get(server.name))


def current_replicas(now: Snapshot, server: Server, accelerator: str) -> int:
    """Return the current number of replicas of a server on an accelerator."""
    reported = now.replicas.get(server.name)
    if reported is not None:
        there = reported.get(accelerator)
        return 0 if there is None else there.ready + there.pending
    return server.current.replicas.get(accelerator, 0)


def readings(now: Snapshot) -> Iterator[TargetState]:
    """Yield the state of every target."""
    times = now.planned_loads_sent_at
    for server in now.entities.planned_by_role.values():
        for accelerator in accelerators_of(now.entities, server, now):
            target_states = reading(now, server, accelerator, times)
            if target_states is not None:
                yield target_states
    yield from shared_readings(now)


def shared_readings(now: Snapshot) -> Iterator[TargetState]:
    """Yield the state of the targets of shared cards: the cards of the last plan, to which no rules apply."""
    for use in () if now.plan is None else now.plan.plan.shared_cards:
        reported = now.replicas.get(use.name, {}).get(use.accelerator)
        current = 0 if reported is None else reported.ready + reported.pending
        target = ReplicaTarget(use.num_cards, TargetReason.replanned, cost_cents_per_h=use.cost_cents_per_h)
        yield TargetState(use.name, use.accelerator, target, current)


def _answer(target_state: TargetState, now: Snapshot) -> TargetAnswer:
    assert now.plan is not None
    made = datetime.fromtimestamp(now.plan.made_at, UTC)
    target = target_state.target
    return TargetAnswer.taken_from(
        target,
        target=f"{target_state.server}/{target_state.accelerator}",
        server=target_state.server,
        accelerator=target_state.accelerator,
        desired_replicas=target.replicas,
        current_replicas=target_state.current,
        max_batch_size=target.max_batch,
        generated_at=made,
        age_s=age_s(now.plan.made_at),
        load_age_s=None if target_state.load_sent_at is None else age_s(target_state.load_sent_at),
        revision=now.plan.revision,
    )


def _require_targets(now: Snapshot, request: Request) -> None:
    """Check that there are valid targets.

    Raises:
        HTTPException: 503, there is no plan, or the plan is stale.
    """
    unknown = unavailable_reason(now, request.app.state.settings.stale_after_s)
    if unknown is not None:
        raise _refusal(unknown)


def _refusal(problem: str) -> HTTPException:
    return HTTPException(503, problem, headers={"Retry-After": str(RETRY_S)})


@router.get(
    "/targets/{server:any_text}/{accelerator:any_text}",
    response_model=TargetAnswer,
    summary="Read the desired replicas of a server on an accelerator",
    responses=problems(404, 503),
)
async def read_target(request: Request, key: Annotated[Key, Depends(server_and_accelerator)]) -> Response:
    """Return the desired replicas of a server on an accelerator; 0 if the plan chose another accelerator.

    For KEDA's `metrics-api`, with `valueLocation: desiredReplicas`. The status is 503 if there is no plan or
    only a stale one, or if the load of the server is stale; the autoscaler must then keep the replicas.
    """
    held, (name, accelerator) = held_fleet(request), key
    now = await current_snapshot(held)
    server = now.entities.planned_by_role.get(name)
    if server is None and name in now.entities.servers:
        known = now.entities.servers[name]
        if known.split:
            names = ", ".join(planned_names(known))
            raise HTTPException(404, f"server {name!r} is split; read the targets of {names}")
        queue = known.shared_queue
        raise HTTPException(404, f"server {name!r} shares the replicas of {queue!r}; read the target of that")
    if server is None:
        return _shared_cards(now, name, accelerator, request)
    if accelerator not in accelerators_of(now.entities, server, now):
        if accelerator not in now.entities.accelerators:
            raise HTTPException(404, f"accelerator {accelerator!r} does not exist")
        raise HTTPException(
            404, f"server {name!r} cannot run on {accelerator!r}: it is not allowed there, or has no profile"
        )
    _require_targets(now, request)
    target = reading(now, server, accelerator, now.planned_loads_sent_at)
    if target is None:
        raise _refusal(f"server {name!r} is not in the last plan; plan again")
    limit_s = request.app.state.settings.stale_after_s
    if target.load_sent_at is not None and target.is_stale(limit_s):
        age = f"{age_s(target.load_sent_at):.0f} s old, over the limit of {limit_s:g} s"
        raise _refusal(f"the load of server {name!r} is {age}; send its arrivalRate again")
    return Response(_answer(target, now).model_dump_json(by_alias=True), media_type=JSON)


def _shared_cards(now: Snapshot, name: str, accelerator: str, request: Request) -> Response:
    """Return the target of shared cards in the last plan; it is 0 if no shared cards have this name."""
    sharing = any(server.shared_card for server in now.entities.planned_by_role.values())
    if not sharing or not name.startswith(SHARED_NAME) or accelerator not in now.entities.accelerators:
        raise HTTPException(404, f"server {name!r} does not exist")
    _require_targets(now, request)
    none = TargetState(name, accelerator, ReplicaTarget(0, TargetReason.not_chosen), 0)
    key = name, accelerator
    mine = (item for item in shared_readings(now) if (item.server, item.accelerator) == key)
    return Response(_answer(next(mine, none), now).model_dump_json(by_alias=True), media_type=JSON)


@router.get(
    "/targets",
    response_model=TargetList,
    summary="Read the desired replicas of every server",
    responses=problems(503),
)
async def list_targets(request: Request) -> Response:
    """Return all targets of the last plan, including those without replicas.

    Servers whose loads are older than `--stale-after` have no target; `stale` lists them.
    """
    now = await current_snapshot(held_fleet(request))
    _require_targets(now, request)
    limit_s, items = request.app.state.settings.stale_after_s, list(readings(now))
    stale = {item.server: None for item in items if item.is_stale(limit_s)}
    targets = tuple(_answer(item, now) for item in items if item.server not in stale)
    target_list = TargetList(targets=targets, stale=tuple(stale))
    return Response(target_list.model_dump_json(by_alias=True), media_type=JSON)
