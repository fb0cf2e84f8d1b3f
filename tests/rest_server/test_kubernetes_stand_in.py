"""The stand-in of the Kubernetes API, with lightkube as its client, over real HTTP."""

import json
import queue
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest
from commands import Run, is_one_line
from doc_pages import blocks, read_page
from emulated import Emulator, emulated
from lightkube import ApiError, Client, operators
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster as ApiCluster
from lightkube.config.models import User
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Event, Pod
from lightkube.types import OnErrorAction, OnErrorResult, PatchType
from patience import PATIENCE_S, until
from two_sizes import two_sizes

from optimizer.schema.files import parse_part
from optimizer.spec.system import join_parts
from rest_server.loop.config import KubernetesTarget
from rest_server.loop.deciding import ExistingReplicas
from rest_server.loop.kubernetes import Cluster, ClusterError, LeaderWorkerSet

FLEET = two_sizes(cards=8)
"""Eight cards of nodes with two: a replica of talk takes one, a replica of think four of two nodes."""
CLUSTER = "nodes: [{accelerator: GPU, labels: {gpu: any}, cards: 2}]"
DEPLOYMENTS = "/apis/apps/v1/namespaces/serving/deployments"
TALK, THINK, CARDS = "talk-gpu", "think-4xgpu", 8

WORKLOADS = ((Deployment, TALK), (LeaderWorkerSet, THINK))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.yaml").write_text(FLEET)
    (folder / "cluster.yaml").write_text(CLUSTER)
    flags = ("--scalable", "--startup", "0.3", "--cluster", str(folder / "cluster.yaml"))
    with emulated(folder / "fleet.yaml", *flags) as found:
        yield found


def connected(fleet: Emulator, manager: str = "tester") -> Any:
    config = KubeConfig.from_one(cluster=ApiCluster(server=fleet.url), user=User())
    return Client(config, namespace="serving", field_manager=manager, trust_env=False)


@pytest.fixture
def client(fleet: Emulator) -> Iterator[Any]:
    """A client; workloads afterwards have one replica each and no owner but it."""
    with connected(fleet) as found:
        yield found
        for resource, name in WORKLOADS:
            apply(found, resource, name, 1, force=True)
        until(lambda: [ready(found, *one) for one in WORKLOADS] == [1, 1])


def apply(client: Any, resource: Any, name: str, replicas: int, *, force: bool = False) -> Any:
    spec = ScaleSpec(replicas=replicas) if resource is Deployment else {"replicas": replicas}
    metadata = ObjectMeta(name=name, namespace="serving")
    body = resource.Scale(apiVersion="autoscaling/v1", kind="Scale", metadata=metadata, spec=spec)
    return client.apply(body, force=force)


def ready(client: Any, resource: Any, name: str) -> int:
    status = client.get(resource, name).to_dict()["status"]
    return int(status.get("readyReplicas", 0))  # absent if zero, as in a cluster


class Watcher:
    """A watch in a thread, which resumes as lightkube does."""

    def __init__(self, client: Any, resource: Any, version: str) -> None:
        self.errors: list[Exception] = []
        self.stopped = False
        self._arrived: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._client, self._resource, self._version = client, resource, version

    def run(self) -> None:
        def resumed(error: Exception, _: int) -> OnErrorResult:
            self.errors.append(error)
            return OnErrorResult(OnErrorAction.STOP if self.stopped else OnErrorAction.RETRY)

        watched = self._client.watch(self._resource, resource_version=self._version, on_error=resumed)
        for kind, item in watched:
            self._arrived.put((kind, item.to_dict()))

    def next(self, wanted: Callable[[str, Any], bool]) -> tuple[str, Any]:
        """Return the next event of which something holds."""
        while True:
            kind, item = self._arrived.get(timeout=PATIENCE_S)
            if wanted(kind, item):
                return kind, item


@contextmanager
def watching(fleet: Emulator, client: Any, resource: Any, version: str) -> Iterator[Watcher]:
    watcher = Watcher(client, resource, version)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    until(lambda: fleet.ask("/emulator/kubernetes").json["watches"] == 1)
    yield watcher
    watcher.stopped = True
    fleet.ask("/emulator/kubernetes", {"fault": "cut"})
    thread.join(PATIENCE_S)


def listed_version(client: Any, resource: Any) -> str:
    items = client.list(resource)
    list(items)
    return str(items.resourceVersion)


def test_get_and_list_say_that_this_is_a_stand_in(fleet: Emulator, client: Any) -> None:
    (found,) = client.list(Deployment, labels={"inferno.server.name": "talk"})
    assert found.metadata.name == TALK
    assert "stand-in" in found.metadata.annotations["inferplan.dev/emulated"]
    assert list(client.list(Deployment, labels={"inferno.server.name": operators.equal("other")})) == []
    assert [item.metadata.name for item in client.list(Deployment, fields={"metadata.name": TALK})] == [TALK]
    assert "stand-in" in fleet.ask("/emulator/kubernetes").json["note"]
    with pytest.raises(ApiError, match=r'deployments\.apps "none" not found'):
        client.get(Deployment, "none")
    with pytest.raises(ApiError, match="only KEY=VALUE is supported"):
        list(client.list(Deployment, labels={"inferno.server.name": operators.not_equal("talk")}))


def test_a_replica_on_several_nodes_is_a_leader_worker_set(client: Any) -> None:
    (found,) = (item.to_dict() for item in client.list(LeaderWorkerSet))
    assert (found["metadata"]["name"], found["spec"]["leaderWorkerTemplate"]["size"]) == (THINK, 2)
    assert [item.metadata.name for item in client.list(Deployment)] == [TALK]
    assert client.get(LeaderWorkerSet.Scale, THINK).to_dict()["spec"] == {"replicas": 1}
    apply(client, LeaderWorkerSet, THINK, 0)
    until(lambda: ready(client, LeaderWorkerSet, THINK) == 0)
    apply(client, LeaderWorkerSet, THINK, 1)
    until(lambda: ready(client, LeaderWorkerSet, THINK) == 1)
    pods = {item.metadata.name for item in client.list(Pod, labels={"app": THINK})}
    assert len(pods) == 2  # leader and worker


def test_scale_is_patched_and_applied(client: Any) -> None:
    found = client.patch(Deployment.Scale, TALK, {"spec": {"replicas": 2}}, patch_type=PatchType.MERGE)
    assert found.spec.replicas == 2
    (owner,) = client.get(Deployment, TALK).metadata.managedFields
    assert (owner.manager, owner.operation, owner.subresource) == ("tester", "Update", "scale")
    assert apply(client, Deployment, TALK, 3, force=True).spec.replicas == 3
    (owner,) = client.get(Deployment, TALK).metadata.managedFields
    assert (owner.manager, owner.operation) == ("tester", "Apply")
    until(lambda: ready(client, Deployment, TALK) == 3)
    with pytest.raises(ApiError, match=r"spec.replicas: must be an integer of at least 0, not -1"):
        client.patch(Deployment.Scale, TALK, {"spec": {"replicas": -1}}, patch_type=PatchType.MERGE)


def test_another_manager_is_a_conflict_unless_forced(fleet: Emulator, client: Any) -> None:
    apply(client, Deployment, TALK, 2, force=True)
    with connected(fleet, "other") as other:
        with pytest.raises(ApiError, match='conflict with "tester" using autoscaling/v1') as caught:
            apply(other, Deployment, TALK, 3)
        assert (caught.value.status.code, caught.value.status.reason) == (409, "Conflict")
        details: Any = caught.value.status.details
        assert [(one.reason, one.field) for one in details.causes] == [
            ("FieldManagerConflict", ".spec.replicas")
        ]
        assert client.get(Deployment, TALK).spec.replicas == 2
        apply(other, Deployment, TALK, 3, force=True)
    with pytest.raises(ApiError, match='conflict with "other"'):
        apply(client, Deployment, TALK, 2)


def test_manifests_that_set_replicas_own_them(fleet: Emulator, client: Any) -> None:
    """An applied Deployment with `spec.replicas` takes the field, and gives it back without."""
    with connected(fleet, "gitops") as gitops:
        whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": TALK}}
        applied = whole | {"spec": {"replicas": 2}}
        gitops.patch(Deployment, TALK, applied, patch_type=PatchType.APPLY, force=True)
        with pytest.raises(ApiError, match=r'conflict with "gitops" using apps/v1: \.spec\.replicas'):
            apply(client, Deployment, TALK, 3)
        gitops.patch(Deployment, TALK, whole | {"spec": {}}, patch_type=PatchType.APPLY)
        assert apply(client, Deployment, TALK, 3).spec.replicas == 3
        with pytest.raises(ApiError, match="must be a Deployment of apps/v1"):
            gitops.patch(Deployment, TALK, {"spec": {"replicas": 2}}, patch_type=PatchType.APPLY)


def test_an_update_of_an_old_version_is_a_conflict(client: Any) -> None:
    seen = client.get(Deployment.Scale, TALK)
    seen.spec.replicas = 2
    assert client.replace(seen).spec.replicas == 2
    seen.spec.replicas = 3
    with pytest.raises(ApiError, match="the object has been modified"):
        client.replace(seen)


def test_a_whole_deployment_is_replaced(client: Any) -> None:
    def replaced() -> bool:
        """Replace what was read, unless a replica that starts changed its status meanwhile."""
        whole = client.get(Deployment, TALK)
        whole.spec.replicas = 2
        with suppress(ApiError):
            return bool(client.replace(whole).spec.replicas == 2)
        return False

    until(replaced)


def test_a_watch_shows_every_step_of_a_start(fleet: Emulator, client: Any) -> None:
    with watching(fleet, client, Deployment, listed_version(client, Deployment)) as watcher:
        apply(client, Deployment, TALK, 2, force=True)
        _, desired = watcher.next(lambda _, item: item["spec"]["replicas"] == 2)
        assert desired["status"]["readyReplicas"] == 1
        kind, _ = watcher.next(lambda _, item: item["status"].get("readyReplicas") == 2)
        assert kind == "MODIFIED"
        assert watcher.errors == []


def test_a_cut_watch_is_resumed_without_loss(fleet: Emulator, client: Any) -> None:
    with watching(fleet, client, Deployment, listed_version(client, Deployment)) as watcher:
        fleet.ask("/emulator/kubernetes", {"fault": "cut"})
        apply(client, Deployment, TALK, 3, force=True)
        kind, _ = watcher.next(lambda _, item: item["spec"]["replicas"] == 3)
        assert kind == "MODIFIED"  # a watch that began anew would see ADDED
        assert "without sending complete message body" in str(watcher.errors[0])


def test_an_expired_watch_begins_anew(fleet: Emulator, client: Any) -> None:
    version = listed_version(client, Deployment)
    apply(client, Deployment, TALK, 2, force=True)
    fleet.ask("/emulator/kubernetes", {"fault": "expire"})
    with watching(fleet, client, Deployment, version) as watcher:
        kind, item = watcher.next(lambda *_: True)
        assert (kind, item["spec"]["replicas"]) == ("ADDED", 2)
        error = watcher.errors[0]
        assert isinstance(error, ApiError)
        assert (error.status.code, error.status.reason) == (410, "Expired")


@pytest.mark.slow
def test_a_watch_ends_after_its_time(fleet: Emulator) -> None:
    begun_s = time.monotonic()
    lines = fleet.ask(f"{DEPLOYMENTS}?watch=true&timeoutSeconds=1").text
    assert 1 <= time.monotonic() - begun_s < PATIENCE_S
    event, *_ = map(json.loads, lines.splitlines())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", TALK)
    bad = fleet.ask(f"{DEPLOYMENTS}?watch=true&resourceVersion=new")
    assert (bad.status, bad.json["reason"]) == (400, "BadRequest")


def cards_in_use(client: Any) -> int:
    """Return the cards of pods that are scheduled: one of talk, two of each node of think."""
    pods = [item for item in client.list(Pod) if item.status.phase == "Running"]
    return sum(1 if item.metadata.labels["app"] == TALK else 2 for item in pods)


def unscheduled(client: Any) -> list[Any]:
    return [item for item in client.list(Pod) if item.status.phase == "Pending"]


@pytest.mark.slow
def test_replicas_wait_for_cards_of_all_servers(client: Any) -> None:
    apply(client, Deployment, TALK, 6, force=True)
    until(lambda: ready(client, Deployment, TALK) == 4)  # the other four cards have think's replica
    assert cards_in_use(client) == CARDS
    apply(client, LeaderWorkerSet, THINK, 2)
    until(lambda: len(unscheduled(client)) == 2 + 2)
    assert {item.status.conditions[0].reason for item in unscheduled(client)} == {"Unschedulable"}
    apply(client, Deployment, TALK, 0)
    until(lambda: ready(client, LeaderWorkerSet, THINK) == 2)
    assert cards_in_use(client) == CARDS


def lease(name: str, holder: str) -> Any:
    spec = LeaseSpec(holderIdentity=holder, leaseDurationSeconds=10)
    return Lease(metadata=ObjectMeta(name=name, namespace="serving"), spec=spec)


def test_a_lost_lease_is_seen_and_cannot_be_renewed(fleet: Emulator, client: Any) -> None:
    with connected(fleet, "other") as other:
        mine = client.create(lease("acting", "first"))
        with watching(fleet, client, Lease, mine.metadata.resourceVersion) as watcher:
            theirs = other.get(Lease, "acting")
            theirs.spec.holderIdentity = "second"
            other.replace(theirs)
            _, seen = watcher.next(lambda kind, _: kind == "MODIFIED")
            assert seen["spec"]["holderIdentity"] == "second"
            with pytest.raises(ApiError, match="the object has been modified"):
                client.replace(mine)
            with pytest.raises(ApiError, match="must be specified for an update"):
                client.replace(lease("acting", "first"))
            with pytest.raises(ApiError, match="already exists"):
                client.create(lease("acting", "first"))
            client.delete(Lease, "acting")
            assert watcher.next(lambda kind, _: kind == "DELETED")
    with pytest.raises(ApiError, match="not found"):
        client.get(Lease, "acting")


def test_events_are_kept(client: Any) -> None:
    about = ObjectReference(kind="Deployment", name=TALK, namespace="serving")
    metadata = ObjectMeta(generateName="drift-", namespace="serving")
    made = client.create(Event(metadata=metadata, involvedObject=about, reason="Drift", message="slow"))
    assert made.metadata.name.startswith("drift-")
    assert "Drift" in [item.reason for item in client.list(Event)]


def test_an_unavailable_server_answers_503(fleet: Emulator, client: Any) -> None:
    fleet.ask("/emulator/kubernetes", {"fault": "unavailable", "seconds": 0.5})
    with pytest.raises(ApiError, match="unavailable, by a fault"):
        client.get(Deployment, TALK)
    time.sleep(0.5)
    assert client.get(Deployment, TALK).spec.replicas == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/emulator/kubernetes", {"fault": "fire"}, 400, "must be one of cut, expire, unavailable"),
        ("POST", "/emulator/kubernetes", {"fault": "cut", "seconds": -1}, 400, "from 0 to 1e6, not -1"),
        ("GET", "/api/v1/namespaces/serving/secrets", None, 404, "could not find the requested resource"),
        ("GET", "/api/v1/namespaces/serving/pods/a/scale", None, 404, "could not find"),
        (
            "DELETE",
            f"/apis/apps/v1/namespaces/serving/deployments/{TALK}",
            None,
            405,
            "replicas of workloads",
        ),
        ("DELETE", "/api/v1/namespaces/serving/pods/talk-gpu-0", None, 405, "replicas of workloads"),
        ("PUT", f"/apis/apps/v1/namespaces/serving/deployments/{TALK}/scale?dryRun=All", {}, 400, "dryRun"),
        ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/serving/leases/a", {}, 404, "not found"),
        ("GET", "/apis/apps/v1/namespaces/serving/deployments?fieldSelector=a=b", None, 400, "metadata.name"),
    ],
)
def test_what_the_stand_in_lacks_is_said(
    fleet: Emulator, method: str, path: str, body: Any, status: int, said: str
) -> None:
    found = fleet.ask(path, body, method=method)
    assert found.status == status
    assert said in found.text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_run(fleet: Emulator, client: Any) -> None:
    apply(client, Deployment, TALK, 1, force=True)
    page = read_page("emulator.md").split("## Scale it")[1]
    text = "".join(block.text for block in blocks(page)).replace("\\\n", "")
    faster = {"http://127.0.0.1:8100": fleet.url, "timeoutSeconds=30": "timeoutSeconds=1", "30}": "0.1}"}
    for old, new in faster.items():
        text = text.replace(old, new)
    shown = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("curl ")][:4]
    runs = [subprocess.run(["curl", "-sS", *words], capture_output=True, check=True) for words in shown]
    answers = [run.stdout for run in runs]
    assert json.loads(answers[0])["spec"] == {"replicas": 3}
    assert json.loads(answers[1].splitlines()[0])["type"] == "ADDED"
    assert ["stand-in" in json.loads(text)["note"] for text in answers[2:]] == [True] * 2
    until(lambda: fleet.ask(DEPLOYMENTS).status == HTTPStatus.OK)


def test_the_loop_reads_and_scales_a_group(fleet: Emulator, client: Any) -> None:
    group = {"server": "think", "accelerator": "4xGPU", "name": THINK, "kind": "LeaderWorkerSet"}
    given = {"url": fleet.url, "workloads": [group], "fieldManager": "loop"}
    target = KubernetesTarget.model_validate(given)
    with connected(fleet, "loop") as mine:
        loop = Cluster(mine, target, join_parts([parse_part(FLEET)]))
        apply(client, LeaderWorkerSet, THINK, 1, force=True)
        with pytest.raises(ClusterError, match='conflict with "tester"'):
            loop.scale("think", "4xGPU", 0)
        apply(mine, LeaderWorkerSet, THINK, 0, force=True)
        until(lambda: loop.read()[0]["think"]["4xGPU"] == ExistingReplicas(0, 0))
        loop.scale("think", "4xGPU", 1)
        until(lambda: loop.read()[0]["think"]["4xGPU"] == ExistingReplicas(1, 1))
        assert loop.read()[1] == {}


def test_a_cluster_table_needs_a_fleet_that_scales(run: Run) -> None:
    is_one_line(run("emulate", "sample:chat", "--cluster", "x.yaml"), "--cluster: names LeaderWorkerSets")
