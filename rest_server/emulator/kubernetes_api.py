"""The part of the Kubernetes API that a scaler needs, for an emulated fleet: a stand-in, not an API server.

It has Deployments and LeaderWorkerSets with the subresource `scale`, server-side apply with field managers
and conflicts, resource versions, Leases and Events. It is written from the documented behaviour of
Kubernetes; it checks no schemas and no rights, and no real API server has confirmed it.
"""

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs

from rest_server.emulator.asgi import BadRequest, Receive, Scope, Send, body_of, json_of, reply_json

NAMESPACE = "serving"
"""Namespace of the emulated workloads."""
APPLY = "application/apply-patch+yaml"
_WORKLOADS = re.compile(
    r"/apis/(?P<group>apps|leaderworkerset\.x-k8s\.io)/v1/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>deployments|leaderworkersets)(?:/(?P<name>[^/]+)(?P<scale>/scale)?)?"
)
_LEASES = re.compile(
    r"/apis/coordination\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)/leases(?:/(?P<name>[^/]+))?"
)
_EVENTS = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/events")
_KINDS = {
    "deployments": ("Deployment", "apps/v1"),
    "leaderworkersets": ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
}


class ApiProblem(Exception):  # noqa: N818
    """An answer with an error status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    @property
    def status(self) -> dict[str, Any]:
        """Return the error as a `Status`."""
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code,
            "reason": self.reason, "message": str(self),
        }  # fmt: skip


@dataclass(slots=True)
class Workload:
    """A workload: its desired replicas, and who owns that field."""

    name: str
    server: str
    accelerator: str
    replicas: int
    plural: str = "deployments"
    owners: dict[str, str] = field(default_factory=dict)
    """Operation, Apply or Update, of each field manager that owns the replicas."""
    version: int = 1
    generation: int = 1


class RunsWorkloads(Protocol):
    """The fleet behind the API."""

    workloads: dict[str, Workload]

    def counts(self, name: str) -> tuple[int, int]:
        """Return the existing and the ready replicas of a workload."""


class KubernetesApi:
    """ASGI application with the API of a fleet."""

    def __init__(self, fleet: RunsWorkloads) -> None:
        self._fleet = fleet
        self._versions = itertools.count(2)
        self._leases: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []

    @staticmethod
    def serves(path: str) -> bool:
        """Return whether a path belongs to the API."""
        return path.startswith(("/apis/", "/api/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            body = json_of(await body_of(receive)) if scope["method"] != "GET" else {}
            await reply_json(send, *self._answer(scope, body))
        except ApiProblem as problem:
            await reply_json(send, problem.status, problem.code)
        except BadRequest as problem:
            await reply_json(send, ApiProblem(400, "BadRequest", str(problem)).status, 400)

    def _answer(self, scope: Scope, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        path, method = scope["path"], scope["method"]
        if found := _WORKLOADS.fullmatch(path):
            return self._workload(found, scope, body), 200
        if found := _LEASES.fullmatch(path):
            return self._lease(found["name"], method, body)
        if _EVENTS.fullmatch(path):
            if method == "POST":
                self.events.append(body)
                return body, 201
            return {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": self.events}, 200
        raise ApiProblem(404, "NotFound", "the server could not find the requested resource")

    def _workload(self, found: "re.Match[str]", scope: Scope, body: dict[str, Any]) -> dict[str, Any]:
        method, name, plural = scope["method"], found["name"], found["plural"]
        here = found["namespace"] == NAMESPACE
        mine = [item for item in self._fleet.workloads.values() if here and item.plural == plural]
        if name is None and method == "GET":
            kind, version = _KINDS[plural]
            query = parse_qs(scope["query_string"].decode())
            wanted = [part.split("=") for text in query.get("labelSelector", []) for part in text.split(",")]
            documents = [self._document(item) for item in mine]
            items = [
                item
                for item in documents
                if all(item["metadata"]["labels"].get(key) == value for key, value in wanted)
            ]
            return {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": items}
        item = next((item for item in mine if item.name == name), None)
        if item is None:
            raise ApiProblem(404, "NotFound", f'{plural}.{found["group"]} "{name}" not found')
        if method in {"PATCH", "PUT"} and found["scale"]:
            self._set_scale(item, scope, body)
        elif method != "GET":
            raise ApiProblem(405, "MethodNotAllowed", "the stand-in changes workloads through scale only")
        return self._scale(item) if found["scale"] else self._document(item)

    def _set_scale(self, item: Workload, scope: Scope, body: dict[str, Any]) -> None:
        query = {key: values[-1] for key, values in parse_qs(scope["query_string"].decode()).items()}
        kind = dict(scope["headers"]).get(b"content-type", b"").decode()
        manager, replicas = query.get("fieldManager", "unknown"), body.get("spec", {}).get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            raise ApiProblem(422, "Invalid", f"spec.replicas: {replicas!r} is not a count")
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in {None, "", str(item.version)}:
            raise ApiProblem(409, "Conflict", f'"{item.name}" has been modified; apply to the latest version')
        if kind == APPLY:
            if (body.get("kind"), body.get("apiVersion")) != ("Scale", "autoscaling/v1"):
                raise ApiProblem(400, "BadRequest", "an applied scale must be a Scale of autoscaling/v1")
            self._apply(item, manager, replicas, force=query.get("force") == "true")
        elif replicas != item.replicas:
            item.owners = {manager: "Update"}
        if replicas != item.replicas:
            item.replicas, item.generation = replicas, item.generation + 1
        item.version = next(self._versions)

    @staticmethod
    def _apply(item: Workload, manager: str, replicas: int, *, force: bool) -> None:
        """Make a manager the owner of the replicas; others lose them only by force."""
        others = sorted(item.owners.keys() - {manager})
        if others and replicas != item.replicas:
            if not force:
                named = ", ".join(
                    f'conflict with "{other}" using autoscaling/v1: .spec.replicas' for other in others
                )
                raise ApiProblem(409, "Conflict", f"Apply failed with {len(others)} conflict: {named}")
            item.owners = {}
        item.owners[manager] = "Apply"

    def _metadata(self, item: Workload) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
        managed = [
            {"manager": name, "operation": operation, "subresource": "scale", "fieldsV1": fields}
            for name, operation in item.owners.items()
        ]
        return {
            "name": item.name, "namespace": NAMESPACE, "uid": f"emulated-{item.name}",
            "resourceVersion": str(item.version), "generation": item.generation, "managedFields": managed,
            "labels": {
                "inferno.server.managed": "true", "inferno.server.name": item.server,
                "inferno.server.allocation.accelerator": item.accelerator,
            },
            "annotations": {
                "inferplan.dev/server": item.server, "inferplan.dev/accelerator": item.accelerator,
            },
        }  # fmt: skip

    def _document(self, item: Workload) -> dict[str, Any]:
        kind, version = _KINDS[item.plural]
        there, ready = self._fleet.counts(item.name)
        labels = {"app": item.name}
        containers = [{"name": "vllm", "image": "emulated"}]
        return {
            "kind": kind, "apiVersion": version, "metadata": self._metadata(item),
            "spec": {
                "replicas": item.replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
            "status": {"replicas": there, "readyReplicas": ready, "observedGeneration": item.generation},
        }  # fmt: skip

    def _scale(self, item: Workload) -> dict[str, Any]:
        there, _ = self._fleet.counts(item.name)
        return {
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": self._metadata(item),
            "spec": {"replicas": item.replicas},
            "status": {"replicas": there, "selector": f"app={item.name}"},
        }  # fmt: skip

    def _lease(self, name: str | None, method: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        metadata = body.get("metadata", {})
        if name is None and method == "POST":
            if metadata["name"] in self._leases:
                raise ApiProblem(409, "AlreadyExists", f'leases "{metadata["name"]}" already exists')
            return self._store(metadata["name"], body), 201
        found = self._leases.get(name or "")
        if found is None:
            raise ApiProblem(404, "NotFound", f'leases.coordination.k8s.io "{name}" not found')
        if method == "PUT":
            if metadata.get("resourceVersion") not in {None, "", found["metadata"]["resourceVersion"]}:
                raise ApiProblem(409, "Conflict", f'leases "{name}" has been modified')
            return self._store(str(name), body), 200
        return found, 200

    def _store(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        metadata = body.get("metadata", {}) | {
            "resourceVersion": str(next(self._versions)),
            "namespace": NAMESPACE,
        }
        self._leases[name] = body | {
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata,
        }  # fmt: skip
        return self._leases[name]
