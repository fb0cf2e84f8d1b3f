"""Workloads of a Kubernetes cluster: reads their replicas, and scales them by server-side apply.

Replicas are set on the subresource `scale` under a separate field manager without force, so the API server
responds with 409 if another controller owns them. A Lease ensures that only one of several loops acts.
"""

import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster as ApiCluster
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event

from optimizer.errors import SpecError
from optimizer.render.manifests import unique_names, workload_pairs
from optimizer.spec.system import System
from rest_server.loop.config import KubernetesTarget, WorkloadTarget
from rest_server.loop.deciding import Existing, ExistingReplicas
from rest_server.loop.state_file import new_suffix
from rest_server.loop.window import Hold, HoldReason

TIMEOUT_S = 10.0
"""Time limit of a request to the API server [s]."""
MANAGED = "inferno.server.managed"
SERVER_LABEL = "inferno.server.name"
ACCELERATOR_LABEL = "inferno.server.allocation.accelerator"
"""Labels of llm-inferno's Deployments."""
LeaderWorkerSet = create_namespaced_resource(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
_KINDS: Mapping[str, Any] = {"Deployment": Deployment, "LeaderWorkerSet": LeaderWorkerSet}
"""Resource classes with the subresource `scale`, by kind of workload."""


class ClusterError(Exception):
    """Raised when the API server does not respond, or rejects a request."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def connected(target: KubernetesTarget) -> Client:
    """Return a client of the Kubernetes cluster.

    Raises:
        SpecError: there is no configuration of a cluster.
    """
    try:
        if target.url is None:
            config = KubeConfig.from_env()
        else:
            config = KubeConfig.from_one(cluster=ApiCluster(server=target.url), user=User())
        return Client(
            config, namespace=target.namespace, field_manager=target.field_manager, trust_env=False,
            timeout=httpx2.Timeout(TIMEOUT_S),
        )  # fmt: skip
    except (ConfigError, OSError, KeyError) as error:
        raise SpecError(
            f"kubernetes: no cluster is configured: {error}; set kubernetes.url, or run in a pod"
        ) from None


def workloads_of(system: System, target: KubernetesTarget) -> dict[tuple[str, str], WorkloadTarget]:
    """Return the workload of each server on each accelerator that it can use.

    Raises:
        SpecError: a configured workload is for a server or an accelerator that does not exist.
    """
    names = unique_names(workload_pairs(system))
    workloads = {
        pair: WorkloadTarget(server=pair[0], accelerator=pair[1], name=name) for pair, name in names.items()
    }
    for i, item in enumerate(target.workloads):
        if (item.server, item.accelerator) not in workloads:
            raise SpecError(
                f"kubernetes.workloads[{i}]: server {item.server!r} cannot run on {item.accelerator!r}; it "
                "does not exist in the system, or has no profile"
            )
        workloads[item.server, item.accelerator] = item
    return workloads


class Cluster:
    """Workloads of a system in a Kubernetes cluster."""

    def __init__(
        self, client: Client, target: KubernetesTarget, system: System, suffix: str | None = None
    ) -> None:
        """Prepare to read and scale the workloads.

        Args:
            client: client of the cluster.
            target: settings of the cluster.
            system: the system whose workloads are scaled.
            suffix: random part of the loop's identity; None selects one.

        Raises:
            SpecError: a configured workload is for a server or an accelerator that does not exist.
        """
        self._client = client
        self._namespace = target.namespace
        self._manager = target.field_manager
        self._pairs = workload_pairs(system)
        self._labelled = target.reference_labels
        self._workloads = {} if self._labelled else workloads_of(system, target)
        self._lease = LeaseHolder(client, target, suffix or new_suffix()) if target.lease else None

    def read(self) -> tuple[Existing, dict[str, Hold]]:
        """Return the replicas of all workloads, and the servers whose workloads cannot be read."""
        existing_replicas: dict[str, dict[str, ExistingReplicas]] = {}
        problems: dict[str, Hold] = {}
        try:
            self._workloads = self._labelled_ones() if self._labelled else self._workloads
        except ClusterError as error:
            hold = Hold(HoldReason.replicas_unknown, str(error))
            return {}, {server: hold for server, _ in self._pairs}
        for (server, accelerator), workload in self._workloads.items():
            try:
                there = _answered(lambda workload=workload: self._read(workload))  # type: ignore[misc]
            except ClusterError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    continue
                problems[server] = Hold(HoldReason.replicas_unknown, str(error))
                continue
            existing_replicas.setdefault(server, {})[accelerator] = there
        servers = {server for server, _ in self._pairs}
        absent = Hold(
            HoldReason.no_deployment, "none of its workloads exists; 'inferplan manifests' writes them"
        )
        problems |= {
            name: absent for name in servers if name not in existing_replicas and name not in problems
        }
        return {name: there for name, there in existing_replicas.items() if name not in problems}, problems

    def _labelled_ones(self) -> dict[tuple[str, str], WorkloadTarget]:
        """Return the Deployments with llm-inferno's labels, for known servers and accelerators."""
        listed = _answered(
            lambda: list(self._client.list(Deployment, namespace=self._namespace, labels={MANAGED: "true"}))
        )
        labelled_ones = {}
        for item in listed:
            labels = item.metadata.labels or {}
            pair = labels.get(SERVER_LABEL, ""), labels.get(ACCELERATOR_LABEL, "")
            if pair in self._pairs:
                server, accelerator = pair
                labelled_ones[pair] = WorkloadTarget(
                    server=server, accelerator=accelerator, name=item.metadata.name
                )
        return labelled_ones

    def _read(self, workload: WorkloadTarget) -> ExistingReplicas:
        namespace = workload.namespace or self._namespace
        there = self._client.get(_KINDS[workload.kind], workload.name, namespace=namespace)
        raw = there.to_dict()
        desired = raw.get("spec", {}).get("replicas", 1)
        return ExistingReplicas(desired, raw.get("status", {}).get("readyReplicas") or 0)

    def scale(self, server: str, accelerator: str, replicas: int) -> None:
        """Set the number of replicas of a workload.

        Raises:
            ClusterError: another controller owns them (409), or the API server refuses.
        """
        workload = self._workloads[server, accelerator]
        scale = _KINDS[workload.kind].Scale
        metadata = ObjectMeta(name=workload.name, namespace=workload.namespace or self._namespace)
        spec = ScaleSpec(replicas=replicas) if workload.kind == "Deployment" else {"replicas": replicas}
        body = scale(apiVersion="autoscaling/v1", kind="Scale", metadata=metadata, spec=spec)
        _answered(lambda: self._client.apply(body, force=False))

    def announce(self, server: str, accelerator: str, reason: str, message: str) -> None:
        """Create a warning Event about a workload.

        Raises:
            ClusterError: the API server rejects the Event.
        """
        workload = self._workloads[server, accelerator]
        namespace, now = workload.namespace or self._namespace, datetime.now(UTC)
        about = ObjectReference(
            apiVersion=_KINDS[workload.kind]._api_info.resource.api_version,  # noqa: SLF001  no public access
            kind=workload.kind, name=workload.name, namespace=namespace,
        )  # fmt: skip
        event = Event(
            metadata=ObjectMeta(name=f"{workload.name}.{time.time_ns():x}", namespace=namespace),
            involvedObject=about, type="Warning", reason=reason, message=message,
            source=EventSource(component=self._manager), firstTimestamp=now, lastTimestamp=now, count=1,
        )  # fmt: skip
        _answered(lambda: self._client.create(event))

    def may_act(self) -> str | None:
        """Acquire or renew the Lease; return the reason if another loop has it, else None."""
        return None if self._lease is None else self._lease.renew()

    @property
    def has_lease(self) -> bool:
        """Whether the Lease is still valid, so that workloads can be scaled."""
        return self._lease is None or self._lease.is_valid

    def release(self) -> None:
        """Release the Lease, so that another loop need not wait, and close the connections."""
        if self._lease is not None:
            self._lease.release()
        self._client.close()


def _answered(ask: Callable[[], Any]) -> Any:
    """Return the response of the API server.

    Raises:
        ClusterError: there is no response, or it is an error.
    """
    try:
        return ask()
    except ApiError as error:
        code = error.status.code or error.response.status_code
        raise ClusterError(f"{code} {error.status.reason}: {error.status.message}", code) from None
    except (httpx2.HTTPError, OSError) as error:
        raise ClusterError(f"the API server does not answer: {error or type(error).__name__}") from None


class LeaseHolder:
    """Holds the Lease of a control loop.

    As in Kubernetes' own controllers, another holder's Lease counts as expired if it has not changed for its
    duration on the local clock. So clocks need not agree.
    """

    def __init__(
        self,
        client: Client,
        target: KubernetesTarget,
        suffix: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to acquire the Lease.

        Args:
            client: client of the cluster.
            target: settings with the name and the duration of the Lease.
            suffix: random part of the identity, which tells the loops of one host apart.
            clock: function that returns the local time [s].
        """
        self._client = client
        self._name, self._namespace = target.lease, target.namespace
        self._duration_s = target.lease_s
        self.identity = f"{target.identity or socket.gethostname()}-{suffix}"
        self._clock = clock
        self._seen: tuple[str | None, float] = None, 0.0
        """Last known version of the Lease, and the time on the local clock at which it was first seen."""
        self._renewed_s: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether this loop holds the Lease, and no other loop can have taken it over yet."""
        return self._renewed_s is not None and self._clock() - self._renewed_s < self._duration_s * 2 / 3

    def renew(self) -> str | None:
        """Acquire or renew the Lease; return the reason if that is impossible, else None."""
        self._renewed_s = None
        begun_s = self._clock()
        try:
            reason = self._renewed()
        except ClusterError as error:
            return f"lease {self._name}: {error}"
        if reason is None:
            self._renewed_s = begun_s
        return reason

    def _renewed(self) -> str | None:
        try:
            lease = _answered(lambda: self._client.get(Lease, self._name, namespace=self._namespace))
        except ClusterError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            new = Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace), spec=self._spec(0))
            _answered(lambda: self._client.create(new))
            return None
        spec = lease.spec or LeaseSpec()
        if spec.holderIdentity and spec.holderIdentity != self.identity and not self._expired(lease):
            return f"lease {self._name}: held by {spec.holderIdentity}"
        taken = spec.holderIdentity != self.identity
        lease.spec = self._spec((spec.leaseTransitions or 0) + taken)
        _answered(lambda: self._client.replace(lease))  # 409 if another loop was faster
        return None

    def _expired(self, lease: Lease) -> bool:
        version = str(lease.metadata.resourceVersion) if lease.metadata else ""
        if self._seen[0] != version:
            self._seen = version, self._clock()
        spec = lease.spec or LeaseSpec()
        return self._clock() - self._seen[1] > (spec.leaseDurationSeconds or self._duration_s)

    def _spec(self, transitions: int) -> LeaseSpec:
        now = datetime.now(UTC)
        return LeaseSpec(
            holderIdentity=self.identity,
            leaseDurationSeconds=max(1, round(self._duration_s)),
            acquireTime=now,
            renewTime=now,
            leaseTransitions=transitions,
        )

    def release(self) -> None:
        """Clear the holder of the Lease if it is this loop."""
        if self._renewed_s is None:
            return
        self._renewed_s = None
        try:
            lease = _answered(lambda: self._client.get(Lease, self._name, namespace=self._namespace))
            if lease.spec and lease.spec.holderIdentity == self.identity:
                lease.spec.holderIdentity = ""
                _answered(lambda: self._client.replace(lease))
        except ClusterError:
            return  # the Lease expires by itself
