"""The part of the Kubernetes API that an autoscaler needs, for an emulated fleet.

It is not a full API server.

It has Deployments and LeaderWorkerSets with the subresource `scale`, server-side apply of the replicas with
field managers and conflicts, resource versions, read-only Pods, Leases, Events, and watches. It follows the
documented behaviour of Kubernetes, but was not compared with a real API server. It checks neither schemas nor
permissions.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from urllib.parse import parse_qs

from rest_server.emulator.asgi import (
    JSON,
    BadRequest,
    Dropped,
    Receive,
    Scope,
    Send,
    begin,
    body_of,
    encoded,
    hung_up,
    json_of,
    number_of,
    reply_json,
)
from rest_server.emulator.elastic import ElasticFleet
from rest_server.emulator.kubernetes_objects import ApiProblem, Json, Key, ObjectStore, Resource
from rest_server.emulator.workloads import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NAMESPACE,
    PODS,
    STAND_IN,
    Workload,
)

CONTROL = "/emulator/kubernetes"
"""Path under which faults of the API can be caused."""
APPLY = "application/apply-patch+yaml"
_MERGE = ("application/merge-patch+json", "application/strategic-merge-patch+json")
LEASES = Resource("leases", "Lease", "coordination.k8s.io")
EVENTS = Resource("events", "Event", "")
_WORKLOADS = (DEPLOYMENTS, LEADER_WORKER_SETS)
_RESOURCES = {(one.group, one.plural): one for one in (*_WORKLOADS, PODS, LEASES, EVENTS)}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?P<scale>/scale)?)?"
)
Fault = Literal["cut", "expire", "unavailable"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
Query = Mapping[str, str]
Selector = Callable[[Json], bool]


class KubernetesApi:
    """ASGI application with the Kubernetes API of an emulated fleet."""

    def __init__(self, fleet: ElasticFleet) -> None:
        self._fleet = fleet
        self._store = ObjectStore()
        self._published: dict[str, object] = {}
        """State of each workload that its published objects show."""
        self._numbers = itertools.count(1)
        self._down_until_s = 0.0

    @staticmethod
    def serves(path: str) -> bool:
        """Return whether a path belongs to the Kubernetes API, or to its faults."""
        return path.startswith(("/apis/", "/api/")) or path == CONTROL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

        Raises:
            Dropped: a watch was cut.
            BadRequest: a fault is invalid.
        """
        if scope["path"] == CONTROL:
            await self._control(scope, receive, send)
            return

        async def warned(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"warning", f'299 - "{STAND_IN}"'.encode()))
            await send(message)

        if time.monotonic() < self._down_until_s:
            down = ApiProblem(503, "ServiceUnavailable", "the API server is unavailable, by a fault")
            await reply_json(warned, down.status, down.code)
            return
        try:
            body = json_of(await body_of(receive)) if scope["method"] not in {"GET", "DELETE"} else {}
            await self._answer(scope, body, receive, warned)
        except ApiProblem as problem:
            await reply_json(warned, problem.status, problem.code)
        except BadRequest as problem:
            await reply_json(warned, ApiProblem(400, "BadRequest", str(problem)).status, 400)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Cause a fault of the API, or describe the API."""
        if scope["method"] == "POST":
            self._break(json_of(await body_of(receive)))
        state = {"note": STAND_IN, "watches": self._store.watches, "resourceVersion": self._store.version}
        await reply_json(send, state)

    def _break(self, wanted: Json) -> None:
        fault = wanted.get("fault")
        if fault not in FAULTS:
            raise BadRequest(f"fault: must be one of {', '.join(FAULTS)}, not {fault!r}")
        seconds = number_of(wanted, "seconds", 0.0, 0.0)
        if fault == "expire":
            self._store.forget()
        else:
            self._store.end_watches("cut")
        if fault == "unavailable":
            self._down_until_s = time.monotonic() + seconds

    def refresh(self) -> None:
        """Update the objects of workloads whose replicas have changed."""
        for name, item in self._fleet.workloads.items():
            pods = self._fleet.pods(name)
            state = item.replicas, item.generation, dict(item.owners), pods
            if self._published.get(name) == state:
                continue
            self._published[name] = state
            self._store.put(Key(item.resource, NAMESPACE, name), item.document(pods))
            documents = item.pods(pods)
            for old in self._store.listed(PODS, NAMESPACE):
                metadata = old["metadata"]
                if metadata["labels"]["app"] == name and metadata["name"] not in documents:
                    self._store.remove(Key(PODS, NAMESPACE, metadata["name"]))
            for pod, document in documents.items():
                key = Key(PODS, NAMESPACE, pod)
                there = self._store.find(key)
                if there is None or there["status"] != document["status"]:
                    self._store.put(key, document)

    def close(self) -> None:
        """End all watches."""
        self._store.end_watches("end")

    async def _answer(self, scope: Scope, body: Json, receive: Receive, send: Send) -> None:
        self.refresh()
        match = _PATH.fullmatch(scope["path"])
        resource = match and _RESOURCES.get((match["group"] or "", match["plural"]))
        if not match or not resource or (match["scale"] and resource not in _WORKLOADS):
            raise ApiProblem(404, "NotFound", "the server could not find the requested resource")
        query = {key: values[-1] for key, values in parse_qs(scope["query_string"].decode()).items()}
        method, namespace, name = scope["method"], match["namespace"], match["name"]
        if "dryRun" in query:
            raise ApiProblem(400, "BadRequest", "dryRun: not supported; omit it")
        if name is None and method == "GET":
            chosen = _selector(query)
            if query.get("watch") in {"true", "1"}:
                await self._watch(resource, namespace, query, chosen, receive, send)
                return
            items = [item for item in self._store.listed(resource, namespace) if chosen(item)]
            metadata = {"resourceVersion": str(self._store.version)}
            kind = f"{resource.kind}List"
            lists = {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": items}
            await reply_json(send, lists)
        elif resource in _WORKLOADS or method == "GET":
            content_type = dict(scope["headers"]).get(b"content-type", b"").decode()
            key = Key(resource, namespace, str(name))
            await reply_json(
                send, self._object(key, method, content_type, query, body, scale=bool(match["scale"]))
            )
        elif resource in {LEASES, EVENTS}:
            await reply_json(send, *self._record(resource, namespace, name, method, body))
        else:
            raise _not_allowed(method)

    def _object(
        self, key: Key, method: str, content_type: str, query: Query, body: Json, *, scale: bool
    ) -> Json:
        """Return the response to a request for one object; of workloads, only the replicas can be changed."""
        document = self._store.find(key)
        if document is None:
            raise key.resource.not_found(key.name)
        if key.resource not in _WORKLOADS:
            return document
        item = self._fleet.workloads[key.name]
        if method != "GET":
            if method not in {"PATCH", "PUT"}:
                raise _not_allowed(method)
            version = body.get("metadata", {}).get("resourceVersion")
            if version not in {None, "", document["metadata"]["resourceVersion"]}:
                raise key.resource.modified(key.name)
            _change(item, method, content_type, query, body, "scale" if scale else "")
            self.refresh()
            document = self._store.find(key) or document
        return item.scale(document) if scale else document

    def _record(
        self, resource: Resource, namespace: str, name: str | None, method: str, body: Json
    ) -> tuple[Json, int]:
        """Create, update or delete a Lease or an Event; return the object and the HTTP status."""
        metadata = body.get("metadata", {})
        if method == "POST" and name is None:
            name = metadata.get("name") or f"{metadata.get('generateName', 'event-')}{next(self._numbers)}"
            key = Key(resource, namespace, name)
            if self._store.find(key) is not None:
                raise ApiProblem(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            own = {"uid": f"emulated-{next(self._numbers)}", "creationTimestamp": now}
            return self._store.put(key, body | {"metadata": metadata | own}), 201
        key = Key(resource, namespace, str(name))
        there = self._store.find(key)
        if there is None:
            raise resource.not_found(key.name)
        if method == "PUT":
            version = metadata.get("resourceVersion")
            if not version:
                text = "metadata.resourceVersion: must be specified for an update"
                raise ApiProblem(422, "Invalid", text)
            if version != there["metadata"]["resourceVersion"]:
                raise resource.modified(key.name)
            return self._store.put(key, body), 200
        if method == "DELETE":
            self._store.remove(key)
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 200
        raise _not_allowed(method)

    async def _watch(
        self, resource: Resource, namespace: str, query: Query, chosen: Selector, receive: Receive, send: Send
    ) -> None:
        """Stream changes of objects until the client hangs up, the time is over, or the watch is cut.

        As in a cluster, an expired version is reported as an event of the stream, not as a status.
        """
        version = query.get("resourceVersion", "0")
        seconds = query.get("timeoutSeconds", "0")
        if not version.isdigit() or not seconds.isdigit():
            text = f"resourceVersion {version!r} and timeoutSeconds {seconds!r} must be whole numbers"
            raise ApiProblem(400, "BadRequest", text)
        await begin(send, 200, JSON)
        try:
            with self._store.watched(int(version) or None) as news:
                leaving = asyncio.create_task(hung_up(receive))
                leaving.add_done_callback(lambda _: news.put_nowait("end"))
                if int(seconds):
                    asyncio.get_running_loop().call_later(int(seconds), news.put_nowait, "end")
                try:
                    while not isinstance(change := await news.get(), str):
                        here = change.key.resource is resource and change.key.namespace == namespace
                        if here and chosen(change.document):
                            await _send_event(send, change.type, change.document)
                finally:
                    leaving.cancel()
        except ApiProblem as problem:
            await _send_event(send, "ERROR", problem.status)
        else:
            if change == "cut":
                raise Dropped
        await send({"type": "http.response.body", "body": b""})


def _change(
    item: Workload, method: str, content_type: str, query: Query, body: Json, subresource: str
) -> None:
    """Set the replicas of a workload as the body of a request states."""
    manager, replicas = query.get("fieldManager", "unknown"), body.get("spec", {}).get("replicas")
    applies = method == "PATCH" and content_type == APPLY
    is_count = isinstance(replicas, int) and not isinstance(replicas, bool) and replicas >= 0
    if not is_count and (subresource or replicas is not None):
        raise ApiProblem(422, "Invalid", f"spec.replicas: must be an integer of at least 0, not {replicas!r}")
    if applies:
        own = item.resource.kind, item.resource.api_version
        wanted = ("Scale", "autoscaling/v1") if subresource else own
        if (body.get("kind"), body.get("apiVersion")) != wanted:
            raise ApiProblem(400, "BadRequest", f"the applied object must be a {wanted[0]} of {wanted[1]}")
        if "fieldManager" not in query:
            raise ApiProblem(422, "Invalid", "fieldManager: is required for apply patch")
        item.apply(manager, replicas, subresource, force=query.get("force") == "true")
    elif method == "PATCH" and content_type not in _MERGE:
        known = ", ".join((APPLY, *_MERGE))
        raise ApiProblem(415, "UnsupportedMediaType", f"the type of a patch must be one of {known}")
    elif replicas is not None:
        item.update(manager, replicas, subresource)


def _not_allowed(method: str) -> ApiProblem:
    text = f"{method}: the stand-in changes the replicas of workloads, Leases and Events only"
    return ApiProblem(405, "MethodNotAllowed", text)


def _selector(query: Query) -> Selector:
    """Return a function that tests whether an object has the labels and the name that a query requires.

    Raises:
        ApiProblem: the query contains an unsupported condition.
    """
    labels, fields = (
        [part.split("=") for part in query.get(name, "").replace("==", "=").split(",") if part]
        for name in ("labelSelector", "fieldSelector")
    )
    if any(len(part) != 2 or part[0].endswith("!") for part in (*labels, *fields)):
        raise ApiProblem(400, "BadRequest", "selectors: only KEY=VALUE is supported")
    if any(key != "metadata.name" for key, _ in fields):
        raise ApiProblem(400, "BadRequest", "fieldSelector: only metadata.name is supported")

    def chosen(document: Json) -> bool:
        metadata = document["metadata"]
        there = metadata.get("labels", {})
        return all(there.get(key) == value for key, value in labels) and all(
            metadata["name"] == value for _, value in fields
        )

    return chosen


async def _send_event(send: Send, event_type: str, document: Json) -> None:
    line = encoded({"type": event_type, "object": document}) + b"\n"
    await send({"type": "http.response.body", "body": line, "more_body": True})
