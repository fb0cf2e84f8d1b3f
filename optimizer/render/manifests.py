"""Kubernetes manifests of a plan: one uniquely named workload per server and accelerator.

All pods of a Deployment have the same accelerator. So a server that can run on three accelerators has three
Deployments, and those that the plan does not use have 0 replicas. This module writes patches for existing
Deployments. `render.deployments` writes complete Deployments, and `render.autoscalers` writes autoscalers.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from optimizer.arrays import sorted_by_key
from optimizer.features.disaggregation.streams import wholes_with_roles, with_role_names
from optimizer.features.nodes.uses import node_types_of
from optimizer.features.shared_cards.uses import SharedPool
from optimizer.kinds.kind import EngineSettings
from optimizer.kinds.table import kind_of_pool
from optimizer.plan import Plan
from optimizer.plan.placements import PlacementGroup, placements_of
from optimizer.render.cluster_table import EMPTY_TABLE, ClusterTable
from optimizer.schema.yaml_format import yaml_text
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING

MAX_NAME = 63
"""Maximum length of an object name that is also a label value [characters]."""
DEPLOYMENT = ("apps/v1", "Deployment")
LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
NO_SETTINGS = EngineSettings()
_DIGEST = 8
PREFIX = "inferplan.dev"


@dataclass(frozen=True, slots=True)
class CardContainer:
    """Container of one replica of a server, in a pod that has a shared card."""

    name: str
    """Name of the server; a second and later replica adds its number."""
    server: str
    settings: EngineSettings
    share: float | None
    """Fraction of the card's compute, for NVIDIA's Multi-Process Service; None without shares."""
    memory_gb: float
    """Memory of the replica [GB]."""
    slice: str | None
    """Name of the accelerator that is the replica's slice of the card; None without slices."""


@dataclass(frozen=True, slots=True)
class WorkloadManifest:
    """Kubernetes workload of one server on one accelerator."""

    name: str
    """Name of the workload and of its autoscaler."""
    server: str
    accelerator: str
    replicas: int
    settings: EngineSettings = NO_SETTINGS
    """Settings of the serving engine; empty if they are unknown because the plan has no replicas."""
    max_surge: str | int | None = None
    """Maximum surge of the Deployment (pods or a percentage); None keeps the Deployment's setting."""
    containers: tuple["CardContainer", ...] = ()
    """Containers of a pod on a shared card, one per replica; empty for other pods."""
    nodes: int = 1
    """Nodes per replica; with several, the workload is a LeaderWorkerSet, else a Deployment."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Further annotations by name, such as the request shapes of the workload."""
    node_types: tuple[tuple[str, int], ...] = ()
    """Node types on which the replicas lie, with the numbers of replicas or of their parts."""

    @property
    def target(self) -> dict[str, str]:
        """API version, kind and name of the workload, by which an autoscaler refers to it."""
        version, kind = DEPLOYMENT if self.nodes == 1 else LEADER_WORKER_SET
        return {"apiVersion": version, "kind": kind, "name": self.name}


def variants(
    plan: Plan,
    system: System | None = None,
    table: ClusterTable = EMPTY_TABLE,
    elsewhere: Mapping[tuple[str, str], EngineSettings] = MappingProxyType({}),
) -> tuple[WorkloadManifest, ...]:
    """Return the workloads of a plan, in the order of their servers.

    Args:
        system: adds the accelerators that servers can use but the plan does not; None lists only used ones.
        table: the cluster; with a system it determines which replicas need several nodes.
        elsewhere: settings on accelerators that the plan does not use.
    """
    by_pair: dict[tuple[str, str], tuple[int, EngineSettings]] = {}
    system = None if system is None else with_unused_roles(plan.planned_in(system))
    if system is not None:
        by_pair |= {pair: (0, elsewhere.get(pair, NO_SETTINGS)) for pair in workload_pairs(system)}
    rows = placements_of(plan)
    for row in rows:
        pool = row.rows[0].pool
        if row.mode == "own" and pool is not None:
            by_pair[row.spot] = row.count, kind_of_pool(pool).engine_settings(pool)
    shared = [row for row in rows if row.mode == "shared"]
    names = unique_names([*by_pair, *(row.spot for row in shared)])
    surges, notes = _max_surges(plan, system), plan.workload_notes
    homes = node_types_of(plan.nodes)
    own = [
        WorkloadManifest(
            names[key], *key, *by_pair[key], surges.get(key[0]), notes=notes.get(key[0], {}),
            nodes=1 if system is None else table.nodes_of(key[1], *system.units_per_replica(*key)),
            node_types=homes.get(key, ()),
        )
        for key in sorted(by_pair)
    ]  # fmt: skip
    return (*own, *(_on_cards(row, names[row.spot]) for row in shared))


def with_unused_roles(system: System) -> System:
    """Return the system of a plan with the servers that other plans would have: pools by role, or none."""
    named = {**with_role_names(wholes_with_roles(system.servers)), **system.servers}
    return system if named.keys() == system.servers.keys() else system.with_pool_servers(sorted_by_key(named))


def workload_pairs(system: System) -> list[tuple[str, str]]:
    """Return all pairs of a server and an accelerator that it can use; each pair has a workload."""
    return [
        (server.name, accelerator)
        for server in system.servers.values()
        for accelerator in system.accelerators_of(server)
    ]


def _on_cards(row: PlacementGroup, name: str) -> WorkloadManifest:
    """Return the workload of a placement on shared cards: one pod per card, one container per replica."""
    containers: list[CardContainer] = []
    counts = Counter[str]()
    for item in (part.figures for part in row.rows if isinstance(part.figures, SharedPool)):
        for _ in range(item.per_card):
            plain = slug(item.server)
            counts[plain] += 1
            number = f"-{counts[plain]}" if counts[plain] > 1 else ""
            part = item.accelerator if item.accelerator != row.spot.accelerator else None
            settings = kind_of_pool(item).engine_settings(item)
            containers.append(
                CardContainer(plain + number, item.server, settings, item.share, item.memory_gb, part)
            )
    return WorkloadManifest(name, *row.spot, row.count, containers=tuple(containers))


def _max_surges(plan: Plan, system: System | None) -> dict[str, str | int]:
    """Return the maximum surge of each server: the system's percentage, or else the plan's number of pods.

    Kubernetes rounds the resulting number of pods up, so percentages are rounded down to stay within the
    plan.
    """
    if system is None:
        return {name: use.replicas for name, use in plan.rollouts.items()}
    shares = {name: math.floor(100 * server.surge + ROUNDING) for name, server in system.servers.items()}
    return {name: f"{share}%" if share else 1 for name, share in shares.items() if system.servers[name].surge}


def unique_names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a unique name for each server and accelerator: lower-case letters, digits and hyphens.

    A name that is too long or not unique ends with a digest of server and accelerator.
    """
    plain = {pair: slug("-".join(pair)) for pair in pairs}
    counts = Counter(plain.values())
    return {
        pair: name if counts[name] == 1 and 0 < len(name) <= MAX_NAME else _with_digest(name, pair)
        for pair, name in plain.items()
    }


def slug(text: str) -> str:
    """Convert text to a valid Kubernetes name, which starts with a letter and ends with a letter or digit."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"v-{name}" if name[:1].isdigit() else name


def _with_digest(name: str, pair: tuple[str, str]) -> str:
    digest = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME - _DIGEST - 1].rstrip('-') or 'variant'}-{digest}"


def metadata_of(variant: WorkloadManifest, namespace: str, **notes: str) -> dict[str, Any]:
    """Return the Kubernetes metadata of a workload or of its autoscaler; `notes` become annotations."""
    slices = ", ".join(f"{one.name}: {one.slice}" for one in variant.containers if one.slice)
    return {
        "name": variant.name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "inferplan"},
        "annotations": {
            f"{PREFIX}/server": variant.server,
            f"{PREFIX}/accelerator": variant.accelerator,
            **({f"{PREFIX}/slices": slices} if slices else {}),
            **{f"{PREFIX}/{key}": value for key, value in notes.items()},
        },
    }


def deployment_patch(
    variant: WorkloadManifest, namespace: str, container: str, *, replicas: bool = True
) -> dict[str, Any]:
    """Return a strategic-merge patch for the Deployment of a workload.

    The kind of a server determines its settings. For engines with arguments, the patch replaces the list
    `args` by the batch limit only, so other engine settings belong in `command`; other settings are
    annotations. The patch of a LeaderWorkerSet sets only replicas, because a merge would replace its
    containers.
    With a surge, the Deployment starts that number of pods before it stops any.

    Args:
        namespace: namespace of the Deployment.
        container: name of the container with the engine.
        replicas: whether to set the number of replicas; False if an autoscaler sets it.
    """
    spec: dict[str, Any] = {"replicas": variant.replicas} if replicas else {}
    if variant.nodes > 1:
        arguments = {"args": " ".join(variant.settings.args)} if variant.settings.args else {}
        return patched(variant, namespace, spec, **arguments)
    spec |= strategy_of(variant)
    if variant.settings.args:
        engine = {"name": container, "args": list(variant.settings.args)}
        spec["template"] = {"spec": {"containers": [engine]}}
    if variant.containers:
        spec["template"] = {"spec": {"containers": [replica_patch(one) for one in variant.containers]}}
    return patched(variant, namespace, spec)


def strategy_of(variant: WorkloadManifest) -> dict[str, Any]:
    """Return the update strategy of a Deployment that has a surge; empty without one."""
    if variant.max_surge is None:
        return {}
    update = {"maxSurge": variant.max_surge, "maxUnavailable": 0}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": update}}


def patched(
    variant: WorkloadManifest, namespace: str, spec: Mapping[str, Any], **notes: str
) -> dict[str, Any]:
    """Return the patch of a workload with the given specification; `notes` become annotations."""
    version, kind = (variant.target[key] for key in ("apiVersion", "kind"))
    metadata = metadata_of(variant, namespace, **_notes(variant), **notes)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _notes(variant: WorkloadManifest) -> dict[str, str]:
    """Return the engine settings that are annotations; for shared cards, each names its container."""
    notes = {**variant.notes, **variant.settings.annotations}
    if variant.node_types:
        notes["nodes"] = ", ".join(f"{n} in {node}" for node, n in variant.node_types)
    for one in variant.containers:
        for key, value in one.settings.annotations.items():
            notes[key] = f"{notes[key]}, {one.name}: {value}" if key in notes else f"{one.name}: {value}"
    return notes


def replica_patch(one: CardContainer) -> dict[str, Any]:
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


def node_comment(plan: Plan) -> str:
    """Return the nodes of a plan as a comment; empty if there are none."""
    counts = [
        f"{use.num_nodes} {use.node} ({use.cards // use.num_nodes} cards each)"
        for use in plan.nodes
        if use.num_nodes
    ]
    if not counts:
        return ""
    return (
        f"# Nodes of the plan: {', '.join(counts)}. Replicas fit into them if the scheduler packs pods,\n"
        "# the largest first: NodeResourcesFit with MostAllocated; one that spreads pods needs more nodes.\n"
    )


def manifests_text(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Return manifests as YAML text, one document after the other."""
    return "---\n".join(map(yaml_text, manifests))
