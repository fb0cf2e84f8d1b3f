"""Documents of llm-inferno's control loop: the output of its collector, and the input of its actuator."""

from collections.abc import Mapping
from typing import Any

from optimizer.errors import SpecError
from optimizer.kinds.fields import Load
from optimizer.render.manifests import unique_names, workload_pairs
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.config import LoopConfig
from rest_server.loop.controller import Controller
from rest_server.loop.kubernetes import ClusterError


def collected(system: System, record: Mapping[str, Any], config: LoopConfig) -> dict[str, Any]:
    """Return the servers of the last cycle in the format of llm-inferno's collector.

    A server has the accelerator with most of its replicas, because llm-inferno supports only one. If its load
    was never measured, it has the load of its document, because llm-inferno stops servers that are absent.

    Args:
        system: the documented system.
        record: record of the last cycle.
        config: the configuration.
    """
    namespace = config.kubernetes.namespace if config.kubernetes else ""
    names = unique_names(workload_pairs(system))
    servers, resources = [], {}
    for name, server in system.servers.items():
        mine = [item for item in record["workloads"] if item["server"] == name]
        if not mine:
            continue
        most = max(mine, key=lambda item: (item["existing"], item["accelerator"]))
        allocation = {
            "accelerator": most["accelerator"], "numReplicas": most["existing"],
            "maxBatch": server.current.max_batch, "cost": 0.0, "itlAverage": 0.0, "ttftAverage": 0.0,
            "load": _load(server.current.load, record["loads"].get(name)),
        }  # fmt: skip
        servers.append(
            {"name": name, "class": server.service_class, "model": server.model, "currentAlloc": allocation}
        )
        resources[name] = {"uid": "", "name": names[name, most["accelerator"]], "space": namespace}
    return {"servers": servers, "replicas": [], "kube-resources": resources}


def _load(documented: Load, measured: Mapping[str, float] | None) -> dict[str, float]:
    """Return a load in llm-inferno's format, in requests/min and integer tokens."""
    values = measured or {}
    rate_rps = documented.arrival_rate_rpm / SECONDS_PER_MINUTE
    return {
        "arrivalRate": values.get("planned_rps", rate_rps) * SECONDS_PER_MINUTE,
        "throughput": values.get("completions_rps", 0.0) * SECONDS_PER_MINUTE,
        "avgInTokens": round(values.get("in_tokens", documented.in_tokens)),
        "avgOutTokens": round(values.get("out_tokens", documented.out_tokens)),
    }


def updated(loop: Controller, body: Any) -> list[str]:
    """Scale the servers in a request body of llm-inferno's controller, and return the problems.

    Only listed servers are scaled, and none of them to zero unless the configuration allows that. Replicas on
    other accelerators are removed once those on the new accelerator are ready.

    Raises:
        SpecError: the body has another format, or names unknown servers; nothing is scaled in this case.
    """
    wanted = _allocations(loop.system, body)
    fleet = loop.fleet
    if fleet is None:
        raise SpecError("kubernetes: no cluster is configured")
    with loop.lock:
        lease = fleet.may_act()
        if lease is not None:
            return [lease]
        there, holds = fleet.read()
        problems = [f"{name}: {hold.detail}" for name, hold in holds.items() if name in wanted]
        for name, (accelerator, replicas) in wanted.items():
            mine = there.get(name, {})
            if accelerator not in mine:
                problems.append(f"{name}: no workload on {accelerator!r}")
                continue
            least = 0 if loop.config.scale_to_zero else 1
            changes = {accelerator: max(replicas, least)}
            if mine[accelerator].ready >= changes[accelerator]:
                changes |= {on: 0 for on in mine if on != accelerator}
            for on, number in changes.items():
                try:
                    if mine[on].desired != number:
                        fleet.scale(name, on, number)
                except ClusterError as error:
                    problems.append(f"{name}/{on}: {error}")
    return problems


def _allocations(system: System, body: Any) -> dict[str, tuple[str, int]]:
    """Return the accelerator and the number of replicas of each server in a request body.

    Raises:
        SpecError: the body has another format, or names unknown servers.
    """
    allocations = {}
    try:
        for name, allocation in body["allocations"].items():
            if name not in system.servers:
                raise SpecError(f"allocations.{name}: server {name!r} does not exist")
            replicas = allocation["numReplicas"]
            if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
                raise SpecError(f"allocations.{name}.numReplicas: must be a count, not {replicas!r}")
            allocations[name] = str(allocation["accelerator"]), replicas
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"allocations: accelerator and numReplicas by server are expected: {error!r}"
        ) from None
    return allocations
