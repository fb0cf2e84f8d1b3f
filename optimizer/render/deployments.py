"""Kubernetes Deployments and LeaderWorkerSets of a plan: images, arguments, cards, probes and nodes.

The kind of a server determines its container. The cluster table states what a plan cannot know: images and
labels of nodes.
"""

from dataclasses import dataclass
from typing import Any

from optimizer.errors import SpecError
from optimizer.features.disaggregation.uses import ROLE_NOTE
from optimizer.kinds.kind import EngineContainer, EngineSettings
from optimizer.kinds.table import kind_of_profile
from optimizer.profiles.catalogue import load_catalogue
from optimizer.render.cluster_table import ClusterTable, ModelContainer, NodeEntry, default_nodes, label_value
from optimizer.render.manifests import (
    CardContainer,
    WorkloadManifest,
    patched,
    replica_patch,
    slug,
    strategy_of,
)
from optimizer.schema import ModelProfile
from optimizer.spec.system import System

SERVER_LABEL, ACCELERATOR_LABEL = "inferplan_server", "inferplan_accelerator"
"""Pod labels with the names of the server and the accelerator, in characters that are valid in Prometheus."""
ROLE_LABEL = "llm-d.ai/role"
"""Pod label with the role of prefill and decode replicas, by which the router of llm-d finds them."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108  tensor parallelism needs more than the default of 64 MiB
MODEL_HUB = "model-hub"
"""Name of the Secret with the token of the model hub, under the key `token`; pods also start without this
Secret.
"""
START_LIMIT_S = 1800
"""Maximum time for which an engine can load its weights before its pod counts as failed [s]."""
_NAME = "app.kubernetes.io/name"
_PERIOD_S = 10
Json = dict[str, Any]


def starting_table(system: System) -> ClusterTable:
    """Return the cluster table of a system with all defaults, for the user to edit."""
    types = sorted({item.type for item in system.accelerators.values()})
    models = []
    for name in sorted({server.model for server in system.servers.values()}):
        for profile in system.profiles_of(name)[:1]:
            source = _source(profile, ModelContainer(model=name))
            image = _container(profile, 1, ModelContainer(model=name)).image
            models.append(ModelContainer(model=name, image=image, source=source))
    return ClusterTable(nodes=tuple(map(default_nodes, types)), models=tuple(models)).with_nodes_of(system)


@dataclass(frozen=True, slots=True)
class Deployments:
    """Writes the workloads of a system as Kubernetes Deployments and LeaderWorkerSets."""

    system: System
    table: ClusterTable
    namespace: str
    container: str
    """Name of the container with the serving engine."""
    replicas: bool = True
    """Whether to set the number of replicas; False if an autoscaler sets it."""

    def of(self, variant: WorkloadManifest) -> Json:
        """Return the Deployment of a workload, or its LeaderWorkerSet if a replica needs several nodes.

        Raises:
            SpecError: the table lacks the resource of a shared card or a slice.
        """
        if variant.containers:
            containers = [self._on_card(one, i, variant) for i, one in enumerate(variant.containers)]
            return self._deployment(variant, containers)
        model, cards = self.system.servers[variant.server].model, self._cards(variant)
        entry, profile = self.table.model_of(model), self.system.profiles[model, variant.accelerator]
        engine = _container(profile, cards, entry, hands_over=ROLE_NOTE in variant.notes)
        resource = self._node(variant).resource, cards // variant.nodes
        if variant.nodes == 1:
            return self._deployment(
                variant, [_pod_container(self.container, engine, variant.settings, resource)]
            )
        leader, worker = (
            _pod_container(
                self.container, engine._replace(command=(*engine.command, *more)), variant.settings, resource
            )
            for more in (engine.leader_args, engine.worker_args)
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            del worker[probe]  # only the leader answers requests
        group = {
            "size": variant.nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": self._template(variant, [leader]),
            "workerTemplate": self._template(variant, [worker]),
        }
        return patched(variant, self.namespace, self._spec(variant) | {"leaderWorkerTemplate": group})

    def _deployment(self, variant: WorkloadManifest, containers: list[Json]) -> Json:
        spec = self._spec(variant) | strategy_of(variant)
        spec |= {
            "selector": {"matchLabels": {_NAME: variant.name}},
            "template": self._template(variant, containers),
        }
        return patched(variant, self.namespace, spec)

    def _spec(self, variant: WorkloadManifest) -> Json:
        return {"replicas": variant.replicas} if self.replicas else {}

    def _cards(self, variant: WorkloadManifest) -> int:
        return self.system.units_per_replica(variant.server, variant.accelerator)[1]

    def _node(self, variant: WorkloadManifest) -> NodeEntry:
        type_name = self.system.accelerators[variant.accelerator].type
        return self.table.node_of(variant.accelerator, type_name, [node for node, _ in variant.node_types])

    def _template(self, variant: WorkloadManifest, containers: list[Json]) -> Json:
        """Return the pod template of a workload."""
        node = self._node(variant)
        labels = {SERVER_LABEL: variant.server, ACCELERATOR_LABEL: variant.accelerator}
        labels |= {ROLE_LABEL: role} if (role := variant.notes.get(ROLE_NOTE)) else {}
        asked = {
            name: {"key": name, "operator": "Exists", "effect": "NoSchedule"}
            for one in containers
            for name in one["resources"]["limits"]
        }
        return {
            "metadata": {
                "labels": {_NAME: variant.name} | {key: label_value(text) for key, text in labels.items()}
            },
            "spec": {
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,  # a Service named vllm would set VLLM_PORT
                "nodeSelector": dict(node.labels or {}),
                "tolerations": list(asked.values()),
                "containers": containers,
                "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
            },
        }

    def _on_card(self, one: CardContainer, place: int, variant: WorkloadManifest) -> Json:
        """Return the container of one replica on a shared card, with its share of the card's compute."""
        model = self.system.servers[one.server].model
        entry = self.table.model_of(model)
        profile = self.system.profiles[model, one.slice or variant.accelerator]
        engine = _container(profile, 1, entry)
        engine = engine._replace(port=engine.port + place)  # containers of a pod share its ports
        resource = self._shared_resource(one, variant), 1
        pod_container = _pod_container(one.name, engine, one.settings, resource)
        pod_container["ports"][0]["name"] = f"http-{place}"
        patch = replica_patch(one)
        return pod_container | patch | {"env": [*pod_container.get("env", ()), *patch.get("env", ())]}

    def _shared_resource(self, one: CardContainer, variant: WorkloadManifest) -> str:
        """Return the Kubernetes resource by which a container requests its part of a shared card.

        Raises:
            SpecError: the table does not name it.
        """
        if one.slice is not None:
            shared_resource = next(
                (each.resource for each in self.table.nodes if each.accelerator == one.slice), ""
            )
            wanted = f"nodes: {{accelerator: {one.slice}, resource: nvidia.com/mig-…}}"
        else:
            shared_resource = self._node(variant).shared_resource or ""
            type_name = self.system.accelerators[variant.accelerator].type
            wanted = f"nodes: {{accelerator: {type_name}, sharedResource: nvidia.com/gpu.shared}}"
        if not shared_resource:
            raise SpecError(
                f"--cluster: no resource for {one.server!r} on a part of {variant.accelerator}; "
                f"name that of the device plugin: {wanted}"
            )
        return shared_resource


def _source(profile: ModelProfile, entry: ModelContainer) -> str:
    """Return the path or repository of a model's weights.

    It is that of the cluster table, else that of the catalogue if the profile is estimated, else the model's
    name.
    """
    estimate = None if profile.iteration is None else profile.iteration.estimate
    if entry.source or estimate is None or estimate.config is not None:
        return entry.source or profile.name
    return load_catalogue().repository(estimate.model or profile.name) or profile.name


def _container(
    profile: ModelProfile, cards: int, entry: ModelContainer, *, hands_over: bool = False
) -> EngineContainer:
    """Return the container of a model's engine, with the image and arguments of the cluster table.

    Args:
        hands_over: whether its replicas prefill or decode only, and hand over KV caches.
    """
    engine = kind_of_profile(profile).container(profile, cards, _source(profile, entry))
    image = entry.image or engine.image or slug(profile.name)
    own, host = (engine.handover_args, engine.handover_host) if hands_over else ((), "")
    return engine._replace(image=image, command=(*engine.command, *own, *entry.args), handover_host=host)


def _pod_container(
    name: str, engine: EngineContainer, settings: EngineSettings, resource: tuple[str, int]
) -> Json:
    """Return a container of a pod that runs a serving engine."""
    probe = {"httpGet": {"path": engine.health_path, "port": engine.port}, "periodSeconds": _PERIOD_S}
    variables = {key.upper().replace("-", "_"): value for key, value in settings.annotations.items()}
    command = (
        [*engine.command, f"{engine.port_flag}={engine.port}"] if engine.port_flag else [*engine.command]
    )
    if not engine.port_flag:
        variables["PORT"] = str(engine.port)
    environment: list[Json] = [{"name": key, "value": value} for key, value in variables.items()]
    if engine.hub_variable:
        secret = {"name": MODEL_HUB, "key": "token", "optional": True}
        environment.append({"name": engine.hub_variable, "valueFrom": {"secretKeyRef": secret}})
    if engine.handover_host:
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        environment.append({"name": engine.handover_host, "valueFrom": address})
    amounts = {resource[0]: str(resource[1])}
    return {
        "name": name,
        "image": engine.image,
        **({"command": command} if command else {}),
        **({"args": list(settings.args)} if settings.args else {}),
        **({"env": environment} if environment else {}),
        "ports": [{"name": "http", "containerPort": engine.port}],
        "resources": {"limits": amounts, "requests": amounts},
        "startupProbe": probe | {"failureThreshold": START_LIMIT_S // _PERIOD_S},
        "readinessProbe": probe,
        "livenessProbe": probe | {"failureThreshold": 6, "timeoutSeconds": 5},
        "volumeMounts": [{"name": "shared-memory", "mountPath": SHARED_MEMORY}],
    }
