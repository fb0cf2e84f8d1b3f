"""Routes of llm-inferno's server, with its statuses, bodies and messages.

A handler parses the request, calls one function, and renders the response. Read-only routes and
``/optimizeOne`` exist in both modes. Routes that change the fleet, by POST or as in llm-inferno by GET, exist
only in stateful mode.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response

from rest_server.compat import classes, entities
from rest_server.compat.answers import WireRoute, json_response, notice_headers
from rest_server.compat.changes import Change, Changed, WireRefusalError, check_fleet
from rest_server.compat.entities import ACCELERATORS, CAPACITIES, SERVERS, SERVICE_CLASSES
from rest_server.compat.lenient import json_body
from rest_server.compat.planning import PlanningResult, desired_by, plan_document, plan_state, planned_fleet
from rest_server.fleet import Entities
from rest_server.settings import Settings
from rest_server.state import FleetStore
from rest_server.v1.requests import held_fleet

_READERS: dict[str, Callable[..., Any]] = {
    "/getAccelerators": entities.accelerators,
    "/getAccelerator/{name}": ACCELERATORS.one,
    "/getCapacities": CAPACITIES.all,
    "/getCapacity/{name}": CAPACITIES.one,
    "/getModels": entities.models,
    "/getModel/{name}": entities.model,
    "/getServiceClasses": SERVICE_CLASSES.all,
    "/getServiceClass/{name}": SERVICE_CLASSES.one,
    "/getServiceClassModelTarget/{name}/{model}": classes.target,
    "/getServers": SERVERS.all,
    "/getServer/{name}": SERVERS.one,
    "/getModelAcceleratorPerf/{name}/{acc}": entities.profile,
}
"""GET routes of both modes: functions from the fleet and the names in the path to the response."""
_CHANGES: dict[str, Callable[..., Changed]] = {
    "/removeAccelerator/{name}": ACCELERATORS.removed,
    "/removeCapacity/{name}": entities.remove_capacity,
    "/addModel/{name}": entities.add_model,
    "/removeModel/{name}": entities.remove_model,
    "/addServiceClass/{name}/{priority}": classes.add_service_class,
    "/removeServiceClass/{name}": SERVICE_CLASSES.removed,
    "/removeServiceClassModelTarget/{name}/{model}": classes.remove_target,
    "/removeServer/{name}": SERVERS.removed,
    "/removeModelAcceleratorPerf/{name}/{acc}": entities.remove_profile,
    "/applyAllocation": entities.apply_allocation,
}
"""GET routes of stateful mode: functions from the fleet and the names in the path to the changed fleet and
the response.
"""
_WRITERS: dict[str, Callable[[object, list[str]], Change]] = {
    "/setAccelerators": ACCELERATORS.set_all,
    "/addAccelerator": ACCELERATORS.add,
    "/setCapacities": CAPACITIES.set_all,
    "/setCapacity": CAPACITIES.add,
    "/setModels": entities.set_models,
    "/setServiceClasses": classes.set_service_classes,
    "/addServiceClassModelTargets": classes.add_targets,
    "/addServiceClassModelTarget": classes.add_targets,
    "/setServers": SERVERS.set_all,
    "/addServer": SERVERS.add,
    "/addModelAcceleratorPerf": entities.add_profile,
}
"""POST routes of stateful mode: functions from the body to a change of the fleet."""


def wire_router(*, stateful: bool) -> APIRouter:
    """Return the routes of llm-inferno in stateful or in stateless mode."""
    router = APIRouter(route_class=WireRoute, include_in_schema=False)
    for path, reader in _READERS.items():
        router.add_api_route(path, _reading(reader), methods=["GET"])
    router.add_api_route("/optimizeOne", optimize_one, methods=["POST"])
    if stateful:
        for path, change in _CHANGES.items():
            router.add_api_route(path, _changing(change), methods=["GET"])
        for path, writer in _WRITERS.items():
            router.add_api_route(path, _writing(writer), methods=["POST"])
        router.add_api_route("/optimize", optimize, methods=["POST"])
    return router


# --- handlers ------------------------------------------------------------------------------------------


async def optimize_one(request: Request) -> Response:
    """Plan the system in the body; it also becomes the fleet, unless the fleet is protected."""
    state, body = request.app.state, await request.body()
    outcome: PlanningResult = await state.workers.run(request, partial(plan_document, body, state.settings))
    if not state.settings.protect_state and state.settings.workers == 1:
        await run_in_threadpool(state.held.replace, partial(planned_fleet, body, outcome))
    return _outcome_response(outcome)


async def optimize(request: Request) -> Response:
    """Plan the fleet with the options in the body, so that every server gets its desired allocation."""
    state = request.app.state
    revision, now = await run_in_threadpool(state.held.read)
    work = partial(plan_state, now.spec(), await request.body(), state.settings)
    outcome: PlanningResult = await state.workers.run(request, work)
    if outcome.status == HTTPStatus.OK:
        await run_in_threadpool(_keep, state.held, now, outcome, revision)
    return _outcome_response(outcome)


def _keep(held: FleetStore, planned: Entities, outcome: PlanningResult, revision: int) -> None:
    """Store the plan, if there is one, and the desired replicas, which are planned or retained."""
    plan, desired = desired_by(planned, outcome)
    if plan is not None:
        held.keep_plan(plan, desired, revision)
    elif desired:
        held.update(lambda now: now.with_desired(desired))


def _reading(reader: Callable[..., Any]) -> Callable[[Request], Response]:
    """Return a handler that responds from a snapshot of the fleet.

    It fails with several worker processes, because they share no plans.
    """

    def handler(request: Request) -> Response:
        if request.app.state.settings.workers > 1:
            raise WireRefusalError(
                HTTPStatus.NOT_IMPLEMENTED,
                "not available with several workers, which share no plans; run one",
            )
        _, now = held_fleet(request).read()
        return json_response(reader(now, **request.path_params))

    return handler


def _changing(change: Callable[..., Changed]) -> Callable[[Request], Response]:
    """Return a handler that changes the fleet."""

    def handler(request: Request) -> Response:
        step = partial(change, **request.path_params)
        return json_response(_carried_out(held_fleet(request), step, request.app.state.settings))

    return handler


def _writing(writer: Callable[[object, list[str]], Change]) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Return a handler that reads a body outside the event loop, and then changes the fleet."""

    def answered(state: State, body: bytes) -> Response:
        ignored: list[str] = []
        change = writer(json_body(body), ignored)
        answer = _carried_out(state.held, change, state.settings)
        return json_response(answer, headers=notice_headers(ignored))

    async def handler(request: Request) -> Response:
        return await run_in_threadpool(answered, request.app.state, await request.body())

    return handler


def _carried_out(held: FleetStore, change: Change, settings: Settings) -> Any:
    answers: list[Any] = []

    def step(now: Entities) -> Entities:
        changed, answer = change(now)
        check_fleet(changed, settings)
        answers[:] = [answer]
        return changed

    held.update(step)
    return answers[0]


def _outcome_response(outcome: PlanningResult) -> Response:
    headers = notice_headers(outcome.ignored, outcome.unplanned, outcome.unserved, outcome.losses)
    return Response(outcome.body, outcome.status, headers, media_type="application/json")
