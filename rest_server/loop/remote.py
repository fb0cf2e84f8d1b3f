"""Planning by another service: it gets the loads, plans and stabilises, and its `/v1/targets` are applied."""

from collections.abc import Mapping
from typing import Any

from optimizer.errors import InferplanError
from optimizer.kinds.fields import Load
from optimizer.kinds.request_shapes import RequestShape
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.client import Client
from rest_server.loop.config import RemotePlanner
from rest_server.loop.deciding import Existing, RemoteTarget, RemoteTargets
from rest_server.loop.fetching import SourceError, secret_in
from rest_server.loop.loads import EstimatedLoad, measured_load
from rest_server.v1.models import LoadUpdate, ReplicaCount

TIMEOUT_S = 60.0
"""Time limit for a plan of the service [s]."""


def asked_targets(
    planner: RemotePlanner, system: System, loads: Mapping[str, EstimatedLoad], existing: Existing
) -> RemoteTargets:
    """Send loads and existing replicas to a service, and return its targets.

    Args:
        planner: address and key of the service.
        system: the system, whose loads state the request shapes.
        loads: loads of the servers that are not held; a server without a load keeps its replicas there.
        existing: existing replicas by server and accelerator.

    Raises:
        SourceError: the service does not respond, or rejects the request.
    """
    changes = {
        name: LoadUpdate.model_validate(
            {
                **(_load(loads[name], system.servers[name].current.load) if name in loads else {}),
                "replicas": {on: _count(item.desired, item.ready) for on, item in there.items()},
            }
        )
        for name, there in existing.items()
    }
    key = secret_in(planner.key_file, "key")
    try:
        with Client(planner.url, api_key=key, timeout_s=TIMEOUT_S) as service:
            service.put_loads(changes)
            answers = service.targets()
    except InferplanError as error:
        raise SourceError(f"{planner.url}: {error}") from None
    remote_targets: dict[str, dict[str, RemoteTarget]] = {}
    for item in answers:
        target = RemoteTarget(item.desired_replicas, item.reason, item.detail, item.held)
        remote_targets.setdefault(item.server, {})[item.accelerator] = target
    return remote_targets


def _load(estimate: EstimatedLoad, stated: Load) -> dict[str, Any]:
    """Return the fields of a measured load; of request shapes, only shares and hit rates are measured."""
    load = measured_load(stated, estimate)
    fields: dict[str, Any] = {"arrivalRate": estimate.planned_rps * SECONDS_PER_MINUTE}
    if load.shapes:
        return fields | {"shapes": {shape.name: _shape(shape) for shape in load.shapes}}
    if estimate.in_tokens is not None:
        fields["avgInTokens"] = load.in_tokens
    if estimate.out_tokens is not None:
        fields["avgOutTokens"] = estimate.out_tokens
    return fields | ({"prefixHitRate": load.prefix_hit_rate} if load.prefix_tokens else {})


def _shape(shape: RequestShape) -> dict[str, float]:
    hits = {"prefixHitRate": shape.prefix_hit_rate} if shape.prefix_tokens else {}
    return {"share": shape.share or 0.0, **hits}


def _count(desired: int, ready: int) -> ReplicaCount:
    return ReplicaCount(ready=ready, pending=max(0, desired - ready))
