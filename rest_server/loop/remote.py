"""Planning by another service: it gets the loads, plans and stabilises, and its `/v1/targets` are applied."""

from collections.abc import Mapping

from optimizer.errors import InferplanError
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.client import Client
from rest_server.loop.config import RemotePlanner
from rest_server.loop.deciding import Existing, RemoteTarget, RemoteTargets
from rest_server.loop.fetching import SourceError, secret_in
from rest_server.loop.loads import EstimatedLoad
from rest_server.v1.models import LoadUpdate, ReplicaCount

TIMEOUT_S = 60.0
"""Time limit for a plan of the service [s]."""


def asked_targets(
    planner: RemotePlanner, loads: Mapping[str, EstimatedLoad], existing: Existing
) -> RemoteTargets:
    """Send loads and existing replicas to a service, and return its targets.

    Args:
        planner: address and key of the service.
        loads: loads of the servers that are not held; a server without a load keeps its replicas there.
        existing: existing replicas by server and accelerator.

    Raises:
        SourceError: the service does not respond, or rejects the request.
    """
    changes = {
        name: LoadUpdate.model_validate(
            {
                **_load(loads.get(name)),
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


def _load(load: EstimatedLoad | None) -> dict[str, float]:
    if load is None:
        return {}
    lengths = {"avgInTokens": load.in_tokens, "avgOutTokens": load.out_tokens}
    known = {key: value for key, value in lengths.items() if value is not None}
    return {"arrivalRate": load.planned_rps * SECONDS_PER_MINUTE, **known}


def _count(desired: int, ready: int) -> ReplicaCount:
    return ReplicaCount(ready=ready, pending=max(0, desired - ready))
