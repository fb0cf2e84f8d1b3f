"""Planning on llm-inferno's routes: items that cannot be part of a valid system are skipped and listed.

If a model, class or accelerator of a server does not exist, llm-inferno finds no candidate for it, and plans
the others. Here these servers and profiles are excluded from the system, and a response header lists them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from optimizer.documents import DEFAULT_MAX_LOSS
from optimizer.errors import InferplanError
from optimizer.plan import Plan
from optimizer.schema import AllocationData, OptimizerOptions, Server, SystemSpec
from optimizer.solvers.deadline import Deadline
from optimizer.spec.streams import planned_names
from optimizer.stabilisation.keeping import Planner
from rest_server.compat.bodies import read_options, read_reference_system
from rest_server.compat.lenient import json_body
from rest_server.compat.retention import PlanWithRetained, divide
from rest_server.compat.serializers import kept_json, plain_json
from rest_server.fleet import Entities, desired_allocations
from rest_server.limits import check_size
from rest_server.settings import Settings
from rest_server.sizing_memo import memo_of_process
from rest_server.state import Arrival

NOT_PLANNED = HTTPStatus.NOT_FOUND
"""HTTP status with which llm-inferno reports a failed optimisation."""


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """Result of planning, as plain values that can be sent between processes."""

    status: int
    """HTTP status of the response."""
    body: bytes
    """Body of the response as JSON."""
    plan: bytes = b""
    """The plan as JSON; empty if there was nothing to plan, or planning failed."""
    ignored: tuple[str, ...] = ()
    """Paths of the ignored keys in the request body."""
    unplanned: tuple[str, ...] = ()
    """Servers and profiles that were excluded from the planned system."""
    unserved: tuple[str, ...] = ()
    """Servers for which the plan has no allocation."""
    kept: Mapping[str, AllocationData] = field(default_factory=dict)
    """Servers to which the plan gives no allocation."""
    losses: tuple[str, ...] = ()
    """Servers that reject more requests than the default limit, with the fraction."""


def plan_document(body: bytes, settings: Settings) -> PlanningResult:
    """Plan the system in a request body of ``/optimizeOne``.

    Raises:
        SpecError: the body cannot be read, or the system exceeds the size limits.
    """
    ignored: list[str] = []
    spec = read_reference_system(json_body(body), ignored)
    check_size(spec, settings)
    return replace(planned(Entities.of(spec), settings), ignored=tuple(ignored))


def planned_fleet(body: bytes, outcome: PlanningResult) -> Arrival:
    """Return the system in a request body of ``/optimizeOne``, with its desired allocations, as a fleet."""
    entities = Entities.of(read_reference_system(json_body(body), []))
    plan, desired = desired_by(entities, outcome)
    return entities.with_desired(desired), plan


def desired_by(entities: Entities, outcome: PlanningResult) -> tuple[Plan | None, dict[str, AllocationData]]:
    """Return the plan of a planned fleet, and its desired allocations by server or version.

    Retained allocations become desired ones. As in llm-inferno, an unserved server that retains nothing keeps
    its previous desired allocation.
    """
    if outcome.status != HTTPStatus.OK:
        return None, {}
    if not outcome.plan:
        return None, dict(outcome.kept)
    plan = Plan.model_validate_json(outcome.plan)
    served = {
        name: item
        for name, item in entities.servers.items()
        if plan.allocations.keys() & {*planned_names(item)}
    }
    return plan, desired_allocations(plan, served) | dict(outcome.kept)


def plan_state(spec: SystemSpec, body: bytes, settings: Settings) -> PlanningResult:
    """Plan the fleet of a service with the options in a request body of ``/optimize``.

    Raises:
        SpecError: the body cannot be read.
    """
    ignored: list[str] = []
    options: OptimizerOptions = read_options(json_body(body), ignored)
    entities = replace(Entities.of(spec), optimizer=options)
    return replace(planned(entities, settings), ignored=tuple(ignored))


def planned(entities: Entities, settings: Settings) -> PlanningResult:
    """Plan the consistent part of a fleet within the time limit of the request.

    A failure is also a result.
    """
    plannable, unplanned = plannable_part(entities)
    try:
        divided = _divided(entities, with_batch_search(plannable), settings)
    except InferplanError as error:
        return _failure(str(error), unplanned)
    names = _unserved(entities, divided.plan)
    unserved = tuple(map(_path, names))
    if names and settings.unserved == "fail":
        return _failure(f"no feasible allocation for servers: [{', '.join(names)}]", unplanned, unserved)
    plan = divided.plan
    return PlanningResult(
        HTTPStatus.OK,
        _json(_answer(divided)),
        b"" if plan is None else plan.to_json().encode(),
        unplanned=tuple(unplanned),
        unserved=unserved,
        kept=divided.kept,
        losses=() if plan is None else tuple(_losses(plan)),
    )


def _divided(fleet: Entities, plannable: Entities, settings: Settings) -> PlanWithRetained:
    """Plan a fleet; if the settings say so, unserved running servers keep their replicas."""
    limit_s = min(plannable.optimizer.time_limit_s, settings.max_solve_s)
    planner = Planner(Deadline.after(limit_s), memo_of_process(settings.sizing_memo_rows))
    if settings.unserved == "keep":
        return divide(fleet, plannable, planner)
    if not plannable.servers:
        return PlanWithRetained(None, None, {})
    system = plannable.system()
    return PlanWithRetained(planner.solve(system, {}, ()).plan, system, {})


def _unserved(entities: Entities, plan: Plan | None) -> list[str]:
    return sorted(
        name
        for name, server in entities.planned.items()
        if plan is None or not (name in plan.allocations or plan.roles_of(server))
    )


def _losses(plan: Plan) -> Iterator[str]:
    """Yield each server that rejects more than the default limit, with the fraction: ``name=0.055``."""
    for name, pools in plan.allocations.items():
        offered = sum(pool.arrival_rate_rpm for pool in pools)
        lost = sum(pool.arrival_rate_rpm * pool.loss for pool in pools)
        if lost > DEFAULT_MAX_LOSS * offered:
            yield f"{_path(name)}={lost / offered:.3g}"


def _answer(with_retained: PlanWithRetained) -> dict[str, Any]:
    """Return all allocations in llm-inferno's format, sorted by server."""
    allocations: dict[str, Any] = {}
    if with_retained.plan is not None and with_retained.system is not None:
        allocations |= with_retained.plan.reference_answer(with_retained.system)["allocations"]
    allocations |= {name: kept_json(item) for name, item in with_retained.kept.items()}
    return {"allocations": {name: allocations[name] for name in sorted(allocations)}}


def _failure(message: str, unplanned: list[str], unserved: tuple[str, ...] = ()) -> PlanningResult:
    body = _json({"message": f"optimization error: {message}"})
    return PlanningResult(NOT_PLANNED, body, unplanned=tuple(unplanned), unserved=unserved)


def with_batch_search(entities: Entities) -> Entities:
    """Optimise batch limits if profiles have no ``atTokens``, as the newest version of llm-inferno does.

    Their ``maxBatchSize`` is the upper limit of the search. Explicit options take precedence, and batch
    limits that every server states are kept.
    """
    options = entities.optimizer
    profiles = [item for mine in entities.models.values() for item in mine.values()]
    newest = profiles and all(item.iteration and not item.at_tokens for item in profiles)
    stated = all(server.max_batch_size for server in entities.servers.values())
    if not newest or stated or "batch_sizing" in options.model_fields_set:
        return entities
    return replace(entities, optimizer=options.model_copy(update={"batch_sizing": "optimal"}))


def _json(answer: dict[str, Any]) -> bytes:
    text = json.dumps(plain_json(answer), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def plannable_part(entities: Entities) -> tuple[Entities, list[str]]:
    """Return the items of a fleet that form a valid system, and the paths of the other items."""
    unplanned = []
    models = {}
    for model, profiles in entities.models.items():
        kept = {acc: item for acc, item in profiles.items() if acc in entities.accelerators}
        unplanned += [_path("models", model, acc) for acc in profiles if acc not in kept]
        if kept:
            models[model] = kept
    servers = {}
    for name, server in entities.servers.items():
        known = all(share.model in models for share in server.split or ()) and server.model in models
        fitted = _fitted(server, entities) if known else None
        if fitted is None:
            unplanned.append(_path("servers", name))
        else:
            servers[name] = fitted
    entities, others = entities.with_routes_of(servers)
    unplanned += [_path("routes", name) for name in others]
    return replace(entities, models=models, servers=servers), unplanned


def _path(*names: str) -> str:
    return "/".join(quote(name, safe="") for name in names)


def _fitted(server: Server, entities: Entities) -> Server | None:
    """Return a server without undefined names; None if it then cannot be placed."""
    known, current = entities.accelerators, server.current
    if server.service_class not in entities.service_classes:
        return None
    if server.accelerators is not None and not set(server.accelerators) <= set(known):
        allowed = tuple(name for name in server.accelerators if name in known)
        if not allowed:
            return None
        server = server.model_copy(update={"accelerators": allowed})
    if server.preferred is not None:
        preferred = tuple(name for name in server.preferred if name in known) or None
        server = server.model_copy(update={"preferred": preferred})
    if server.split:
        shares = tuple(
            share.model_copy(update={"current": None})
            if share.current is not None and share.current.accelerator not in known
            else share
            for share in server.split
        )
        server = server.model_copy(update={"split": shares})
    if any(pool.accelerator not in known for pool in current.pools if pool.mode == "own"):
        server = server.model_copy(update={"current": current.model_copy(update={"pools": ()})})
    if not current.accelerator or current.accelerator in known:
        return server
    if server.keep_accelerator:
        return None
    if current.num_replicas and not current.cost_cents_per_h:
        # The reference treats an unknown price as 0, so the value is that of a server without replicas.
        return server.model_copy(update={"current": AllocationData(load=current.load)})
    return server
