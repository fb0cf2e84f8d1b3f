"""A plan as Kubernetes manifests: one uniquely named workload per server and accelerator.

All pods of a Deployment have the same accelerator, so a server that can run on three accelerators has three
Deployments; those not chosen have 0 replicas. The manifests are patches for these Deployments, or KEDA
ScaledObjects that scale them by `/v1/targets` or by its metrics in Prometheus.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from optimizer.kinds.kind import EngineSettings
from optimizer.kinds.table import kind_of_pool
from optimizer.plan import Plan, Pool
from optimizer.plan.document import SharedPool
from optimizer.plan.placements import PlacementRow, placements_of
from optimizer.spec.system import System
from optimizer.spec.yaml_format import yaml_text
from optimizer.tolerances import ROUNDING

MAX_NAME = 63
"""Maximum length of an object name that is also a label value [characters]."""
SCALE_DOWN_WINDOW_S = 300
"""Stabilisation window of an HPA for scaling down, if the service does not stabilise targets [s]."""
NO_SETTINGS = EngineSettings()
_DIGEST = 8
_PREFIX = "inferplan.dev"


@dataclass(frozen=True, slots=True)
class CardContainer:
    """A container with one replica of a server, in a pod that has a shared card."""

    name: str
    """Name of the server, with a number from the second replica on."""
    settings: EngineSettings
    share: float | None
    """Share of the card's compute, for the Multi-Process Service; None without shares."""
    memory_gb: float
    """Memory of the replica [GB]."""
    slice: str | None
    """Accelerator of the slice that it uses; None without slices."""


@dataclass(frozen=True, slots=True)
class WorkloadManifest:
    """Workload of a server on one accelerator."""

    name: str
    """Name of the Deployment, and of the object that scales it."""
    server: str
    accelerator: str
    replicas: int
    settings: EngineSettings = NO_SETTINGS
    """Settings of the engine; none if the plan has no replicas."""
    max_surge: str | int | None = None
    """Maximum surge of the Deployment; None leaves it unchanged."""
    containers: tuple["CardContainer", ...] = ()
    """Containers of a pod on a shared card, one per replica; empty for other pods."""


def variants(plan: Plan, system: System | None = None) -> tuple[WorkloadManifest, ...]:
    """Return the workloads of a plan, in the order of their servers.

    Args:
        plan: the plan.
        system: adds the accelerators that servers can use but the plan does not; None lists only used ones.
    """
    found: dict[tuple[str, str], tuple[int, EngineSettings]] = {}
    if system is not None:
        found |= dict.fromkeys(workload_pairs(system), (0, NO_SETTINGS))
    rows = placements_of(plan)
    for row in rows:
        pool = row.serves[0].figures
        if row.mode == "own" and isinstance(pool, Pool):
            found[row.spot] = row.count, kind_of_pool(pool).engine_settings(pool)
    shared = [row for row in rows if row.mode == "shared"]
    names = unique_names([*found, *(row.spot for row in shared)])
    surges = _max_surges(plan, system)
    own = [WorkloadManifest(names[key], *key, *found[key], surges.get(key[0])) for key in sorted(found)]
    return (*own, *(_on_cards(row, names[row.spot]) for row in shared))


def workload_pairs(system: System) -> list[tuple[str, str]]:
    """Return each server with each accelerator that it can use: each pair is a workload."""
    return [
        (server.name, accelerator)
        for server in system.servers.values()
        for model, accelerator in system.profiles
        if model == server.model and (server.accelerators is None or accelerator in server.accelerators)
    ]


def _on_cards(row: PlacementRow, name: str) -> WorkloadManifest:
    """Return the workload of shared cards: one pod per card, with one container per replica on it."""
    containers: list[CardContainer] = []
    counts: dict[str, int] = {}
    for item in (part.figures for part in row.serves if isinstance(part.figures, SharedPool)):
        for _ in range(item.per_card):
            plain = _slug(item.server)
            counts[plain] = counts.get(plain, 0) + 1
            number = f"-{counts[plain]}" if counts[plain] > 1 else ""
            part = item.accelerator if item.accelerator != row.spot.accelerator else None
            settings = kind_of_pool(item).engine_settings(item)
            containers.append(CardContainer(plain + number, settings, item.share, item.memory_gb, part))
    return WorkloadManifest(name, *row.spot, row.count, containers=tuple(containers))


def _max_surges(plan: Plan, system: System | None) -> dict[str, str | int]:
    """Return the maximum surge of servers: a percentage from the system, or the number in the plan.

    Kubernetes rounds the resulting pods up, so percentages are rounded down to stay within the plan.
    """
    if system is None:
        return {name: use.replicas for name, use in plan.rollouts.items()}
    shares = {name: math.floor(100 * server.surge + ROUNDING) for name, server in system.servers.items()}
    return {name: f"{share}%" if share else 1 for name, share in shares.items() if system.servers[name].surge}


def unique_names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a unique name for each server and accelerator, in lower-case letters, digits and hyphens.

    Names that are too long or not unique end in a digest of server and accelerator.
    """
    plain = {pair: _slug("-".join(pair)) for pair in pairs}
    counts: dict[str, int] = {}
    for name in plain.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        pair: name if counts[name] == 1 and 0 < len(name) <= MAX_NAME else _with_digest(name, pair)
        for pair, name in plain.items()
    }


def _slug(text: str) -> str:
    """Return text as a valid Kubernetes name: it starts with a letter and ends with a letter or digit."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"v-{name}" if name[:1].isdigit() else name


def _with_digest(name: str, pair: tuple[str, str]) -> str:
    digest = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME - _DIGEST - 1].rstrip('-') or 'variant'}-{digest}"


def _metadata(variant: WorkloadManifest, namespace: str, **notes: str) -> dict[str, Any]:
    slices = ", ".join(f"{one.name}: {one.slice}" for one in variant.containers if one.slice)
    return {
        "name": variant.name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "inferplan"},
        "annotations": {
            f"{_PREFIX}/server": variant.server,
            f"{_PREFIX}/accelerator": variant.accelerator,
            **({f"{_PREFIX}/slices": slices} if slices else {}),
            **{f"{_PREFIX}/{key}": value for key, value in notes.items()},
        },
    }


def deployment_patch(
    variant: WorkloadManifest, namespace: str, container: str, *, replicas: bool = True
) -> dict[str, Any]:
    """Return a strategic-merge patch for the Deployment of a workload.

    The kind of a server determines its settings. For engines with arguments, the patch replaces the list
    `args` by the batch limit only, so other engine settings belong in `command`; other settings are
    annotations.
    With a surge, the Deployment starts that number of pods before it stops any.

    Args:
        variant: the workload.
        namespace: namespace of the Deployment.
        container: name of the container with the engine.
        replicas: whether to set the number of replicas; False if an autoscaler sets it.
    """
    spec: dict[str, Any] = {"replicas": variant.replicas} if replicas else {}
    if variant.max_surge is not None:
        update = {"maxSurge": variant.max_surge, "maxUnavailable": 0}
        spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": update}
    if variant.settings.args:
        engine = {"name": container, "args": list(variant.settings.args)}
        spec["template"] = {"spec": {"containers": [engine]}}
    if variant.containers:
        spec["template"] = {"spec": {"containers": [_of_replica(one) for one in variant.containers]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(variant, namespace, **_notes(variant)),
        "spec": spec,
    }


def _notes(variant: WorkloadManifest) -> dict[str, str]:
    """Return the settings that are annotations; on shared cards each names its container."""
    notes = dict(variant.settings.annotations)
    for one in variant.containers:
        for key, value in one.settings.annotations.items():
            notes[key] = f"{notes[key]}, {one.name}: {value}" if key in notes else f"{one.name}: {value}"
    return notes


def _of_replica(one: CardContainer) -> dict[str, Any]:
    """Return the patch for the container of one replica on a shared card."""
    patch: dict[str, Any] = {"name": one.name}
    if one.settings.args:
        patch["args"] = list(one.settings.args)
    if one.share is None:
        return patch
    settings = {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{100 * one.share:g}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={1000 * one.memory_gb:.0f}M",
    }
    return patch | {"env": [{"name": key, "value": value} for key, value in settings.items()]}


def scaled_object(
    variant: WorkloadManifest, namespace: str, trigger: Mapping[str, Any], *, stabilised: bool = False
) -> dict[str, Any]:
    """Return the ScaledObject that scales the Deployment of a workload by a trigger.

    If the trigger fails and fewer replicas run, it falls back to the replicas of the plan. A workload with 0
    replicas in the plan has no fallback, because it would start replicas that no plan asks for.

    Args:
        variant: the workload.
        namespace: namespace of the Deployment.
        trigger: source of the desired number of replicas.
        stabilised: whether the service stabilises the number; otherwise the HPA does so when scaling down.
    """
    behaviour = {
        "scaleUp": _window(0) | {"selectPolicy": "Max", "policies": _UP},
        "scaleDown": _window(0 if stabilised else SCALE_DOWN_WINDOW_S) | {"policies": _DOWN},
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _metadata(variant, namespace),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": variant.name},
            "pollingInterval": 15,
            "cooldownPeriod": 300,
            "minReplicaCount": 0,
            "maxReplicaCount": max(10, 4 * variant.replicas),
            **_fallback(variant.replicas),
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": behaviour},
            },
            "triggers": [dict(trigger)],
        },
    }


def _fallback(replicas: int) -> dict[str, Any]:
    """Return the fallback to a number of replicas; without one, KEDA keeps the current replicas."""
    if not replicas:
        return {}
    settings = {"failureThreshold": 3, "replicas": replicas, "behavior": "currentReplicasIfHigher"}
    return {"fallback": settings}


def _window(seconds: int) -> dict[str, Any]:
    """Return the scaling settings of one direction, with tolerance 0 so that no change is ignored."""
    return {"stabilizationWindowSeconds": seconds, "tolerance": "0"}


_UP = [
    {"type": "Percent", "value": 100, "periodSeconds": 60},
    {"type": "Pods", "value": 4, "periodSeconds": 60},
]
_DOWN = [{"type": "Percent", "value": 100, "periodSeconds": 60}]


def metrics_api_trigger(variant: WorkloadManifest, service_url: str, authentication: str) -> dict[str, Any]:
    """Return the trigger that reads `/v1/targets` of the service.

    Args:
        variant: the workload.
        service_url: URL of the service.
        authentication: name of the TriggerAuthentication; empty if the service requires no key.
    """
    path = f"{quote(variant.server, safe='')}/{quote(variant.accelerator, safe='')}"
    metadata = {
        "url": f"{service_url.rstrip('/')}/v1/targets/{path}",
        "format": "json",
        "valueLocation": "desiredReplicas",
        "targetValue": "1",
        "activationTargetValue": "0",
    }
    trigger: dict[str, Any] = {"type": "metrics-api", "metricType": "AverageValue", "metadata": metadata}
    if authentication:
        metadata |= {"authMode": "apiKey", "method": "header", "keyParamName": "X-API-KEY"}
        trigger["authenticationRef"] = {"name": authentication}
    return trigger


def prometheus_trigger(variant: WorkloadManifest, prometheus_url: str) -> dict[str, Any]:
    """Return the trigger that reads the target from Prometheus; a missing metric is an error."""
    labels = f'server="{_escaped(variant.server)}",accelerator="{_escaped(variant.accelerator)}"'
    return {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": prometheus_url,
            "query": f"max(inferplan_desired_replicas{{{labels}}})",
            "threshold": "1",
            "activationThreshold": "0",
            "ignoreNullValues": "false",
        },
    }


def _escaped(value: str) -> str:
    """Return text escaped for the quoted value of a label in PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def manifests_text(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return manifests as YAML, one document after the other."""
    return "---\n".join(_documents(manifests))


def _documents(manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for manifest in manifests:
        yield yaml_text(manifest)
