"""Objects of an emulated Kubernetes cluster: their versions, and the journal of changes for watches."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Json = dict[str, Any]
KEPT_CHANGES = 1000
"""Number of changes in the journal; a watch that starts before them has expired."""


class ApiProblem(Exception):  # noqa: N818
    """An error response of the Kubernetes API."""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[Json, ...] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self._causes = code, reason, causes

    @property
    def status(self) -> Json:
        """Return the error as a Kubernetes `Status` object."""
        details = {"details": {"causes": list(self._causes)}} if self._causes else {}
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code,
            "reason": self.reason, "message": str(self), **details,
        }  # fmt: skip


class Resource(NamedTuple):
    """A type of Kubernetes object, with its path in the API."""

    plural: str
    kind: str
    group: str
    """API group; empty for the core group."""

    @property
    def api_version(self) -> str:
        """API group and version, as in manifests."""
        return f"{self.group}/v1" if self.group else "v1"

    def not_found(self, name: str) -> ApiProblem:
        """Return the error for an object of this type that does not exist."""
        return ApiProblem(404, "NotFound", f'{self._title} "{name}" not found')

    def modified(self, name: str) -> ApiProblem:
        """Return the error for an update based on an old version of an object."""
        text = "the object has been modified; please apply your changes to the latest version and try again"
        return ApiProblem(409, "Conflict", f'Operation cannot be fulfilled on {self._title} "{name}": {text}')

    @property
    def _title(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Key(NamedTuple):
    """Key of an object: its type, namespace and name."""

    resource: Resource
    namespace: str
    name: str


ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of an object, as reported to watches."""

    type: ChangeType
    key: Key
    document: Json
    version: int


End = Literal["end", "cut"]
"""How a watch ends: complete, or with a broken connection."""
News = asyncio.Queue[ObjectChange | End]


class ObjectStore:
    """Kubernetes objects by key; as in a cluster, all objects share one sequence of versions."""

    def __init__(self) -> None:
        self.version = 1
        """Version number of the last change."""
        self._objects: dict[Key, Json] = {}
        self._journal: deque[ObjectChange] = deque(maxlen=KEPT_CHANGES)
        self._forgotten = 0
        """Version number of the last change that is no longer in the journal."""
        self._watches: set[News] = set()

    @property
    def watches(self) -> int:
        """Number of watches that are open."""
        return len(self._watches)

    def find(self, key: Key) -> Json | None:
        """Return the object with a key; None if there is none."""
        return self._objects.get(key)

    def listed(self, resource: Resource, namespace: str) -> list[Json]:
        """Return the objects of a type in a namespace."""
        return [
            document
            for key, document in self._objects.items()
            if (key.resource, key.namespace) == (resource, namespace)
        ]

    def put(self, key: Key, document: Mapping[str, Any]) -> Json:
        """Add or replace an object under a new version, and return it with its metadata."""
        return self._changed("MODIFIED" if key in self._objects else "ADDED", key, document)

    def remove(self, key: Key) -> None:
        """Remove an object."""
        self._changed("DELETED", key, self._objects[key])
        del self._objects[key]

    def _changed(self, change_type: ChangeType, key: Key, document: Mapping[str, Any]) -> Json:
        self.version += 1
        own = {"name": key.name, "namespace": key.namespace, "resourceVersion": str(self.version)}
        whole = {
            **document, "kind": key.resource.kind, "apiVersion": key.resource.api_version,
            "metadata": {**document.get("metadata", {}), **own},
        }  # fmt: skip
        self._objects[key] = whole
        change = ObjectChange(change_type, key, whole, self.version)
        if len(self._journal) == KEPT_CHANGES:
            self._forgotten = self._journal[0].version
        self._journal.append(change)
        for news in self._watches:
            news.put_nowait(change)
        return whole

    @contextmanager
    def watched(self, since: int | None) -> Iterator[News]:
        """Context with the changes after a version, or with all objects as added and then their changes.

        Raises:
            ApiProblem: the version is no longer in the journal.
        """
        if since is not None and not self._forgotten <= since <= self.version:
            oldest = f"{since} ({self._forgotten})"
            raise ApiProblem(410, "Expired", f"too old resource version: {oldest}")
        if since is None:
            known = [ObjectChange("ADDED", *item, self.version) for item in self._objects.items()]
        else:
            known = [change for change in self._journal if change.version > since]
        news: News = asyncio.Queue()
        for change in known:
            news.put_nowait(change)
        self._watches.add(news)
        try:
            yield news
        finally:
            self._watches.remove(news)

    def end_watches(self, how: End) -> None:
        """End all watches."""
        for news in self._watches:
            news.put_nowait(how)

    def forget(self) -> None:
        """Empty the journal, so that watches from older versions have expired."""
        self._journal.clear()
        self._forgotten = self.version
