"""Planning as the reference's routes do it: what cannot be part of a system is left out, and named.

The reference finds no candidate for a server whose model, class or accelerator does not exist, and plans the
others. Here the same servers and profiles stay out of the system, and the answer's header says which.
"""

import json
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from optimizer import pipeline
from optimizer.errors import InferplanError
from optimizer.plan import Plan
from optimizer.spec.schema import AllocationData, OptimizerOptions, Server, SystemSpec
from rest_server.compat.bodies import read_options, read_system
from rest_server.compat.lenient import json_body
from rest_server.compat.shapes import plain
from rest_server.limits import check_size
from rest_server.settings import Settings
from rest_server.sizing_memo import memo_of_process
from rest_server.state import Arrival, Entities, desired_allocations

NOT_PLANNED = HTTPStatus.NOT_FOUND
"""The reference's status for a failed optimisation."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What planning gave, in plain values that another process can send."""

    status: int
    """HTTP status."""
    body: bytes
    """JSON of the answer."""
    plan: bytes = b""
    """The plan as JSON; nothing where there was nothing to plan, or planning failed."""
    ignored: tuple[str, ...] = ()
    """Paths in the body that meant nothing."""
    unplanned: tuple[str, ...] = ()
    """Servers and profiles that are not part of the system that was planned."""


def plan_document(body: bytes, settings: Settings) -> Outcome:
    """Plan the system that a body of ``/optimizeOne`` holds.

    Raises:
        SpecError: the body cannot be read, or the system is larger than the service takes.
    """
    ignored: list[str] = []
    spec = read_system(json_body(body), ignored)
    check_size(spec, settings)
    return replace(planned(Entities.of(spec), settings), ignored=tuple(ignored))


def planned_fleet(body: bytes, outcome: Outcome) -> Arrival:
    """Return the system that a body of ``/optimizeOne`` held, with what was planned for it."""
    return with_outcome(Entities.of(read_system(json_body(body), [])), outcome)


def with_outcome(entities: Entities, outcome: Outcome) -> Arrival:
    """Return the entities that were planned with what is desired for them, and the plan.

    As there, a server that is not served keeps what was desired for it before.
    """
    if outcome.status != HTTPStatus.OK:
        return entities, None
    if not outcome.plan:
        return entities, None
    plan = Plan.model_validate_json(outcome.plan)
    served = {name: item for name, item in entities.servers.items() if name in plan.allocations}
    return entities.with_desired(desired_allocations(plan, served)), plan


def plan_state(spec: SystemSpec, body: bytes, settings: Settings) -> Outcome:
    """Plan the fleet of a service with the options that a body of ``/optimize`` holds.

    Raises:
        SpecError: the body cannot be read.
    """
    ignored: list[str] = []
    options: OptimizerOptions = read_options(json_body(body), ignored)
    entities = replace(Entities.of(spec), optimizer=options)
    return replace(planned(entities, settings), ignored=tuple(ignored))


def planned(entities: Entities, settings: Settings) -> Outcome:
    """Plan entities as far as they make a system, in the time of a request; a failure is an outcome too."""
    kept, unplanned = plannable(entities)
    answer: dict[str, Any] = {"allocations": {}}
    plan_text = ""
    try:
        if kept.servers:
            system = kept.system()
            limit_s = min(system.options.time_limit_s, settings.max_solve_s)
            memo = memo_of_process(settings.sizing_memo_rows)
            plan = pipeline.solve(system, time_limit_s=limit_s, memo=memo)
            answer = plan.reference_answer(system)
            plan_text = plan.to_json()
    except InferplanError as error:
        failure = _json({"message": f"optimization error: {error}"})
        return Outcome(NOT_PLANNED, failure, unplanned=tuple(unplanned))
    return Outcome(HTTPStatus.OK, _json(answer), plan_text.encode(), unplanned=tuple(unplanned))


def _json(answer: dict[str, Any]) -> bytes:
    text = json.dumps(plain(answer), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def plannable(entities: Entities) -> tuple[Entities, list[str]]:
    """Return the entities that make a system, and the names of those that do not, as paths."""
    unplanned = []
    models = {}
    for model, profiles in entities.models.items():
        kept = {acc: item for acc, item in profiles.items() if acc in entities.accelerators}
        unplanned += [_path("models", model, acc) for acc in profiles if acc not in kept]
        if kept:
            models[model] = kept
    servers = {}
    for name, server in entities.servers.items():
        fitted = _fitted(server, entities) if server.model in models else None
        if fitted is None:
            unplanned.append(_path("servers", name))
        else:
            servers[name] = fitted
    return replace(entities, models=models, servers=servers), unplanned


def _path(*names: str) -> str:
    return "/".join(quote(name, safe="") for name in names)


def _fitted(server: Server, entities: Entities) -> Server | None:
    """Return a server as far as the names in it exist, or nothing if it then cannot be placed."""
    known, current = entities.accelerators, server.current
    if server.service_class not in entities.service_classes:
        return None
    if server.accelerators is not None and not set(server.accelerators) <= set(known):
        allowed = tuple(name for name in server.accelerators if name in known)
        if not allowed:
            return None
        server = server.model_copy(update={"accelerators": allowed})
    if not current.accelerator or current.accelerator in known:
        return server
    if server.keep_accelerator:
        return None
    if current.num_replicas and not current.cost_cents_per_h:
        # The reference takes an unknown price for 0, and the value is then that of a server with nothing.
        return server.model_copy(update={"current": AllocationData(load=current.load)})
    return server
