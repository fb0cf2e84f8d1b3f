"""Workloads of an emulated Kubernetes cluster: desired replicas, owners of that field, and objects."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from optimizer.render.deployments import ROLE_LABEL
from rest_server.emulator.kubernetes_objects import ApiProblem, Json, Resource

NAMESPACE = "serving"
"""Kubernetes namespace of the emulated workloads."""
DEPLOYMENTS = Resource("deployments", "Deployment", "apps")
LEADER_WORKER_SETS = Resource("leaderworkersets", "LeaderWorkerSet", "leaderworkerset.x-k8s.io")
PODS = Resource("pods", "Pod", "")
STAND_IN = "stand-in of the Kubernetes API for an emulated fleet: it checks no schemas and no rights"
PodState = Literal["pending", "starting", "ready", "draining"]
"""State of a replica: it waits for free cards, starts, serves, or completes its last requests."""


class Owner(NamedTuple):
    """Ownership of the replicas field by a field manager."""

    operation: Literal["Apply", "Update"]
    subresource: str
    """Subresource through which the field is owned: `scale`, or empty for the workload itself."""


@dataclass(slots=True)
class Workload:
    """A workload: its desired replicas, and the owners of that field."""

    name: str
    server: str
    accelerator: str
    replicas: int
    resource: Resource = DEPLOYMENTS
    size: int = 1
    """Number of pods of a replica, one per node."""
    owners: dict[str, Owner] = field(default_factory=dict)
    """Owners of the replicas field, by name of the field manager."""
    generation: int = 1
    role: str = ""
    """Role of its replicas in a prefill or decode pool; empty for others."""

    def update(self, manager: str, replicas: int, subresource: str) -> None:
        """Set the number of replicas; if it changes, the manager becomes the only owner of the field."""
        if replicas != self.replicas:
            self.owners = {manager: Owner("Update", subresource)}
            self._set(replicas)

    def apply(self, manager: str, replicas: int | None, subresource: str, *, force: bool) -> None:
        """Apply the replicas field for a manager, which becomes an owner; with None it stops being one.

        Raises:
            ApiProblem: other managers own another number, and `force` is not set.
        """
        others = sorted(self.owners.keys() - {manager})
        if replicas is None:
            self.owners.pop(manager, None)
            return
        if others and replicas != self.replicas:
            if not force:
                raise self._conflict(others)
            self.owners = {}
        self.owners[manager] = Owner("Apply", subresource)
        self._set(replicas)

    def _set(self, replicas: int) -> None:
        self.generation += replicas != self.replicas
        self.replicas = replicas

    def _conflict(self, others: list[str]) -> ApiProblem:
        causes = tuple(
            {
                "reason": "FieldManagerConflict", "field": ".spec.replicas",
                "message": f'conflict with "{other}" using {self._version_of(self.owners[other])}',
            }
            for other in others
        )  # fmt: skip
        named = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        text = f"Apply failed with {len(causes)} conflict{'s'[: len(causes) > 1]}: {named}"
        return ApiProblem(409, "Conflict", text, causes)

    def _version_of(self, owner: Owner) -> str:
        return "autoscaling/v1" if owner.subresource else self.resource.api_version

    def document(self, pods: "list[tuple[int, PodState]]") -> Json:
        """Return the workload as a Kubernetes object, without name and version."""
        live = [state for _, state in pods if state != "draining"]
        ready = live.count("ready")
        counts = {
            "replicas": len(live), "readyReplicas": ready, "updatedReplicas": len(live),
            "availableReplicas": ready, "unavailableReplicas": len(live) - ready,
        }  # fmt: skip
        template = {
            "metadata": {"labels": self._pod_labels},
            "spec": {"containers": [{"name": "engine", "image": "emulated"}]},
        }
        spec: Json = {"replicas": self.replicas}
        if self.resource is LEADER_WORKER_SETS:
            spec["leaderWorkerTemplate"] = {"size": self.size, "workerTemplate": template}
        else:
            spec |= {"selector": {"matchLabels": self._selector}, "template": template}
        # As in a cluster, counts of zero are absent.
        status = {key: count for key, count in counts.items() if count}
        return {
            "metadata": self._metadata(),
            "spec": spec,
            "status": {**status, "observedGeneration": self.generation},
        }

    @property
    def _selector(self) -> dict[str, str]:
        return {"app": self.name}

    @property
    def _pod_labels(self) -> dict[str, str]:
        return self._selector | ({ROLE_LABEL: self.role} if self.role else {})

    def _metadata(self) -> Json:
        managed = [
            {
                "manager": name, "operation": owner.operation, "subresource": owner.subresource,
                "apiVersion": self._version_of(owner), "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }
            for name, owner in self.owners.items()
        ]  # fmt: skip
        return {
            "uid": f"emulated-{self.name}", "generation": self.generation, "managedFields": managed,
            "labels": {
                "inferno.server.managed": "true", "inferno.server.name": self.server,
                "inferno.server.allocation.accelerator": self.accelerator,
            },
            "annotations": {
                "inferplan.dev/server": self.server, "inferplan.dev/accelerator": self.accelerator,
                "inferplan.dev/emulated": STAND_IN,
            },
        }  # fmt: skip

    def scale(self, document: Json) -> Json:
        """Return the subresource `scale` of the workload's object."""
        selector = ",".join(f"{key}={value}" for key, value in self._selector.items())
        there = document["status"].get("replicas", 0)
        return {
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": document["metadata"],
            "spec": {"replicas": self.replicas}, "status": {"replicas": there, "selector": selector},
        }  # fmt: skip

    def pods(self, pods: "list[tuple[int, PodState]]") -> dict[str, Json]:
        """Return the pods of the workload's replicas, by name.

        The pods of one replica have the same state.
        """
        return {
            f"{self.name}-{number}{f'-{k}' if k else ''}": self._pod(state)
            for number, state in pods
            for k in range(self.size)
        }

    def _pod(self, state: PodState) -> Json:
        scheduled: Json = {"type": "PodScheduled", "status": "True"}
        if state == "pending":
            text = "0 nodes are available: insufficient cards"
            scheduled |= {"status": "False", "reason": "Unschedulable", "message": text}
        ready = {"type": "Ready", "status": "True" if state == "ready" else "False"}
        return {
            "metadata": {"labels": self._pod_labels, "annotations": {"inferplan.dev/state": state}},
            "spec": {"containers": [{"name": "engine", "image": "emulated"}]},
            "status": {
                "phase": "Pending" if state == "pending" else "Running",
                "conditions": [scheduled, ready],
            },
        }
