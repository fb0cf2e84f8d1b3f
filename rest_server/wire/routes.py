"""The reference's wire: every route of its server, with its statuses, bodies and messages.

A handler parses, calls one function and renders. The routes that only read are there in both modes, as is
``/optimizeOne``; those that change the fleet, by POST or as there by GET, only in the stateful one.
"""

import json
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response

from optimizer.errors import SpecError
from rest_server.settings import Settings
from rest_server.state import Entities, FleetState, RevisionConflict
from rest_server.wire import classes, entities
from rest_server.wire.changes import Change, Changed, WireRefusalError, check_fleet
from rest_server.wire.lenient import json_body
from rest_server.wire.planning import Outcome, plan_document, plan_state, planned_fleet, with_outcome

IGNORED_HEADER = "X-Inferplan-Ignored"
"""Names the keys of a body that meant nothing, separated by commas."""
UNPLANNED_HEADER = "X-Inferplan-Unplanned"
"""Names the servers and profiles that refer to nothing and were left out of the plan."""
MAX_NAMED = 20
"""Most paths that a header names."""
MAX_PATH = 100
"""Longest path that a header names."""

_READERS: dict[str, Callable[..., Any]] = {
    "/getAccelerators": entities.accelerators,
    "/getAccelerator/{name}": entities.accelerator,
    "/getCapacities": entities.capacities,
    "/getCapacity/{name}": entities.capacity,
    "/getModels": entities.models,
    "/getModel/{name}": entities.model,
    "/getServiceClasses": classes.service_classes,
    "/getServiceClass/{name}": classes.service_class,
    "/getServiceClassModelTarget/{name}/{model}": classes.target,
    "/getServers": entities.servers,
    "/getServer/{name}": entities.server,
    "/getModelAcceleratorPerf/{name}/{acc}": entities.profile,
}
"""GET, in both modes: entities and names to the answer."""
_CHANGES: dict[str, Callable[..., Changed]] = {
    "/removeAccelerator/{name}": entities.remove_accelerator,
    "/removeCapacity/{name}": entities.remove_capacity,
    "/addModel/{name}": entities.add_model,
    "/removeModel/{name}": entities.remove_model,
    "/addServiceClass/{name}/{priority}": classes.add_service_class,
    "/removeServiceClass/{name}": classes.remove_service_class,
    "/removeServiceClassModelTarget/{name}/{model}": classes.remove_target,
    "/removeServer/{name}": entities.remove_server,
    "/removeModelAcceleratorPerf/{name}/{acc}": entities.remove_profile,
    "/applyAllocation": entities.apply_allocation,
}
"""GET, stateful only: entities and names to changed entities and the answer."""
_WRITERS: dict[str, Callable[[object, list[str]], Change]] = {
    "/setAccelerators": entities.set_accelerators,
    "/addAccelerator": entities.add_accelerator,
    "/setCapacities": entities.set_capacities,
    "/setCapacity": entities.set_capacity,
    "/setModels": entities.set_models,
    "/setServiceClasses": classes.set_service_classes,
    "/addServiceClassModelTargets": classes.add_targets,
    "/addServiceClassModelTarget": classes.add_targets,
    "/setServers": entities.set_servers,
    "/addServer": entities.add_server,
    "/addModelAcceleratorPerf": entities.add_profile,
}
"""POST, stateful only: a body to a change."""


def wire_router(*, stateful: bool) -> APIRouter:
    """Return the reference's routes in one of its modes."""
    router = APIRouter(route_class=_WireRoute, include_in_schema=False)
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
    """Plan the system in the body; unless the state is protected, it becomes the state."""
    state, body = request.app.state, await request.body()
    outcome: Outcome = await state.places.run(request, partial(plan_document, body, state.settings))
    if not (state.settings.stateful and state.settings.protect_state):
        state.fleet.replace(partial(planned_fleet, body, outcome))
    return _outcome_response(outcome)


async def optimize(request: Request) -> Response:
    """Plan the state with the options in the body; every server gets its desired allocation."""
    state = request.app.state
    revision, now = await run_in_threadpool(state.fleet.read)
    work = partial(plan_state, now.spec(), await request.body(), state.settings)
    outcome: Outcome = await state.places.run(request, work)
    if outcome.status == HTTPStatus.OK:
        await run_in_threadpool(_keep_desired, state.fleet, now, outcome, revision)
    return _outcome_response(outcome)


def _keep_desired(fleet: FleetState, planned: Entities, outcome: Outcome, revision: int) -> None:
    """Store what is desired, also where the fleet has changed since, unless a later plan has been made."""
    planned, plan = with_outcome(planned, outcome)
    desired = {name: server.desired for name, server in planned.servers.items()}
    try:
        revision, _ = fleet.update(lambda now: now.with_desired(desired), if_revision=revision)
    except RevisionConflict:
        last = fleet.plan
        if last is None or last.revision <= revision:
            fleet.update(lambda now: now.with_desired(desired))
    if plan is not None:
        fleet.record_plan(plan, revision)


def _fleet(request: Request) -> FleetState:
    fleet: FleetState = request.app.state.fleet
    return fleet


def _reading(reader: Callable[..., Any]) -> Callable[[Request], Response]:
    """Return a handler that answers from a snapshot."""

    def handler(request: Request) -> Response:
        _, now = _fleet(request).read()
        return _json_response(reader(now, **request.path_params))

    return handler


def _changing(change: Callable[..., Changed]) -> Callable[[Request], Response]:
    """Return a handler that changes the state."""

    def handler(request: Request) -> Response:
        step = partial(change, **request.path_params)
        return _json_response(_carried_out(_fleet(request), step, request.app.state.settings))

    return handler


def _writing(writer: Callable[[object, list[str]], Change]) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Return a handler that reads a body, off the event loop, and changes the state."""

    def answered(state: State, body: bytes) -> Response:
        ignored: list[str] = []
        change = writer(json_body(body), ignored)
        answer = _carried_out(state.fleet, change, state.settings)
        return _json_response(answer, headers=_headers(ignored))

    async def handler(request: Request) -> Response:
        return await run_in_threadpool(answered, request.app.state, await request.body())

    return handler


def _carried_out(fleet: FleetState, change: Change, settings: Settings) -> Any:
    answers = []

    def step(now: Entities) -> Entities:
        changed, answer = change(now)
        check_fleet(changed, settings)
        answers.append(answer)
        return changed

    fleet.update(step)
    return answers[0]


# --- answers -------------------------------------------------------------------------------------------


class _WireRoute(APIRoute):
    """A route whose refusals look as the reference's do."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with refusals turned into answers."""
        handler = super().get_route_handler()

        async def refusing(request: Request) -> Response:
            try:
                return await handler(request)
            except WireRefusalError as error:
                return _json_response(error.body, error.http_status)
            except SpecError as error:
                return _json_response({"message": str(error)}, 400)

        return refusing


def _json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = body.encode("utf-8", "backslashreplace")
    return Response(text, status, headers, media_type="application/json")


def _outcome_response(outcome: Outcome) -> Response:
    headers = _headers(outcome.ignored, outcome.unplanned)
    return Response(outcome.body, outcome.status, headers, media_type="application/json")


def _headers(ignored: Iterable[str], unplanned: Iterable[str] = ()) -> dict[str, str]:
    named = {IGNORED_HEADER: list(ignored), UNPLANNED_HEADER: list(unplanned)}
    return {header: _listed(paths) for header, paths in named.items() if paths}


def _listed(paths: list[str]) -> str:
    """Return paths as the value of a header, printable and of bounded length."""
    shown = ", ".join(_printable(path[:MAX_PATH]) for path in paths[:MAX_NAMED])
    return f"{shown} and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else shown


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
