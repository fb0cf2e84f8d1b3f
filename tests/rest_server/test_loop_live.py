"""The loop against a scalable emulated fleet: real HTTP, real lightkube, and the command itself."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ROOT, Run, is_one_line
from emulated import Emulator, emulated
from forked import forked
from patience import until
from slow_cases import mostly_slow
from test_kubernetes_stand_in import CLUSTER, FLEET

from optimizer.simulation.requests import Requests
from optimizer.spec.system import System, load_system
from rest_server.emulator.driver import ServerLoad, drive
from rest_server.loop.config import KubernetesTarget, LoopConfig
from rest_server.loop.controller import Controller
from rest_server.loop.deciding import ExistingReplicas
from rest_server.loop.fetching import Fetcher
from rest_server.loop.kubernetes import Cluster, ClusterError, LeaseHolder, connected
from rest_server.loop.scrape import ScrapeReader

PAGE = (ROOT / "docs" / "loop.md").read_text(encoding="utf-8")


def blocks() -> list[str]:
    """Return the documents of the page: the fleet, and the configuration."""
    return [part.split("```")[0] for part in PAGE.split("```yaml\n")[1:3]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loop")
    (path / "fleet.yaml").write_text(blocks()[0])
    return path


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Iterator[Emulator]:
    with emulated(folder / "fleet.yaml", "--scalable", "--startup", "1") as found:
        yield found


@pytest.fixture(scope="module")
def system(folder: Path) -> System:
    return load_system(folder / "fleet.yaml")


@contextmanager
def cluster(fleet: Emulator, system: System, manager: str, **more: Any) -> Iterator[Cluster]:
    given = {"url": fleet.url, "fieldManager": manager, "identity": manager} | more
    target = KubernetesTarget.model_validate(given)
    client = connected(target)
    yield Cluster(client, target, system)
    client.close()


def there(found: Cluster) -> ExistingReplicas:
    replicas, problems = found.read()
    assert not problems
    return replicas["talk"]["GPU"]


@pytest.mark.slow
def test_scaling_starts_and_stops_replicas(fleet: Emulator, system: System) -> None:
    with cluster(fleet, system, "first") as mine:
        mine.scale("talk", "GPU", 3)
        assert there(mine).desired == 3
        until(lambda: there(mine).ready == 3)
    targets = fleet.ask("/emulator/targets").json
    assert [item["labels"]["server"] for item in targets] == ["talk"] * 3
    for item in targets:
        assert fleet.ask("/health", url=f"http://{item['targets'][0]}").status == 200
    with cluster(fleet, system, "first") as mine:
        mine.scale("talk", "GPU", 1)
    until(lambda: len(fleet.ask("/emulator/targets").json) == 1)


@pytest.mark.slow
def test_replicas_beyond_the_cards_stay_pending(fleet: Emulator, system: System) -> None:
    with cluster(fleet, system, "first") as mine:
        mine.scale("talk", "GPU", 10)
        until(lambda: there(mine).ready == 8)
        time.sleep(0.3)
        assert there(mine) == ExistingReplicas(10, 8)
        mine.scale("talk", "GPU", 1)


def test_another_owner_is_a_conflict(fleet: Emulator, system: System) -> None:
    with cluster(fleet, system, "first") as mine, cluster(fleet, system, "second") as other:
        mine.scale("talk", "GPU", 2)
        with pytest.raises(ClusterError, match=r'409 Conflict: .* conflict with "first"') as caught:
            other.scale("talk", "GPU", 5)
        assert caught.value.status == 409
        assert there(mine).desired == 2
        other.scale("talk", "GPU", 2)  # the same number makes both owners
        with pytest.raises(ClusterError, match='conflict with "second"'):
            mine.scale("talk", "GPU", 1)


def test_absent_workloads_are_named(fleet: Emulator, system: System) -> None:
    with cluster(fleet, system, "first", namespace="other") as elsewhere:
        replicas, problems = elsewhere.read()
    assert (replicas, problems["talk"].reason) == ({}, "NoDeployment")


def test_workloads_are_found_by_the_labels_of_the_reference(fleet: Emulator, system: System) -> None:
    with cluster(fleet, system, "first", referenceLabels=True) as labelled:
        replicas, problems = labelled.read()
    assert not problems
    assert list(replicas["talk"]) == ["GPU"]


def test_an_absent_api_server_is_a_reason(system: System) -> None:
    target = KubernetesTarget.model_validate({"url": "http://127.0.0.1:9"})
    found = Cluster(connected(target), target, system)
    assert found.read()[1]["talk"].reason == "ReplicasUnknown"
    assert "does not answer" in str(found.may_act())
    assert not found.has_lease
    found.release()


def test_one_loop_holds_the_lease(fleet: Emulator) -> None:
    now = [0.0]
    opened = ExitStack()

    def holder(name: str) -> LeaseHolder:
        given = {"url": fleet.url, "identity": name, "lease": "tested", "leaseDuration": 30}
        target = KubernetesTarget.model_validate(given)
        return LeaseHolder(opened.enter_context(connected(target)), target, "1", lambda: now[0])

    first, second = holder("first"), holder("second")
    assert first.renew() is None
    assert second.renew() == "lease tested: held by first-1"
    now[0] = 21.0
    assert not first.is_valid  # before another can have taken it
    assert first.renew() is None
    now[0] = 25.0
    assert second.renew() is not None  # it sees that the lease was renewed
    now[0] = 56.0
    assert second.renew() is None
    assert first.renew() == "lease tested: held by second-1"
    second.release()
    assert first.renew() is None
    opened.close()


@pytest.mark.slow
def test_the_command_of_the_page_runs_and_repeats(fleet: Emulator, folder: Path, run: Run) -> None:
    text = blocks()[1].replace("http://127.0.0.1:8100", fleet.url)
    text = text.replace("period: 5", "period: 1").replace("window: 15", "window: 2")
    config, records = folder / "loop.yaml", folder / "records.jsonl"
    config.write_text(text)
    with forked("loop", config, "--once", "--state", folder / "state.json") as found:
        out, errors = found.communicate()
    assert (found.returncode, errors) == (0, "")
    record = json.loads(out)
    assert record["holds"] == {}
    assert record["workloads"][0]["server"] == "talk"
    assert record["loads"]["talk"]["offered_rps"] == 0.0
    records.write_text(out)
    again = run("loop", config, "--again", records)
    assert (again.status, again.err) == (0, "1 cycles repeated, 0 differ\n")
    is_one_line(run("loop", config, "--again", config), "inferplan: error: ")


@pytest.mark.slow
def test_the_demo_scales_up_and_draws_what_happened(tmp_path: Path) -> None:
    picture = tmp_path / "loop.svg"
    with forked("demo", "loop", "--seconds", "24", "-o", picture) as found:
        out, errors = found.communicate()
    assert found.returncode == 0, errors
    lines = out.splitlines()
    assert "what the loop does" in lines[1]
    ready = [int(line.split("/")[1].split()[0]) for line in lines[2:-1]]
    assert ready[0] == 1
    assert max(ready) >= 3
    assert "with a first token within 1.5 s" in lines[-1]
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 1, "period": 2}, "window 1 s is below the period of 2 s"),
        ({"source": {"kind": "scrap"}}, "source"),
        ({"perriod": 2}, "perriod"),
        (
            {"period": 4, "kubernetes": {"leaseDuration": 7}},
            "kubernetes.leaseDuration 7 s is below twice the period of 4 s",
        ),
    ],
)
def test_a_wrong_configuration_is_one_clear_error(
    change: dict[str, Any], message: str, tmp_path: Path, run: Run
) -> None:
    given = {"system": "sample:small", "source": {"kind": "scrape", "url": "http://127.0.0.1:9/"}}
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(given | change))
    is_one_line(run("loop", path, "--once"), message)


# --- workloads on several nodes, and events ------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Emulator, System]]:
    """Cards on nodes of two: a replica of `think` takes four of them, so it is a LeaderWorkerSet."""
    path = tmp_path_factory.mktemp("nodes")
    (path / "fleet.yaml").write_text(FLEET)
    (path / "cluster.yaml").write_text(CLUSTER)
    flags = ("--scalable", "--startup", "0.3", "--cluster", str(path / "cluster.yaml"))
    with emulated(path / "fleet.yaml", *flags) as found:
        yield found, load_system(path / "fleet.yaml")


SEVERAL_NODES = [
    {"server": "think", "accelerator": "4xGPU", "name": "think-4xgpu", "kind": "LeaderWorkerSet"}
]


def test_a_leader_worker_set_is_read_and_scaled(nodes: tuple[Emulator, System]) -> None:
    fleet, system = nodes
    with cluster(fleet, system, "first", workloads=SEVERAL_NODES) as mine:
        replicas, problems = mine.read()
        assert not problems
        assert replicas["think"] == {"4xGPU": ExistingReplicas(1, 1)}
        mine.scale("think", "4xGPU", 0)
        until(lambda: mine.read()[0]["think"]["4xGPU"] == ExistingReplicas(0, 0))
        mine.scale("think", "4xGPU", 1)
        until(lambda: mine.read()[0]["think"]["4xGPU"] == ExistingReplicas(1, 1))
        with (
            cluster(fleet, system, "second", workloads=SEVERAL_NODES) as other,
            pytest.raises(ClusterError, match=r'409 Conflict: .* conflict with "first"'),
        ):
            other.scale("think", "4xGPU", 2)


def test_a_leader_worker_set_that_is_not_configured_is_named(nodes: tuple[Emulator, System]) -> None:
    fleet, system = nodes
    with cluster(fleet, system, "first") as mine:
        assert mine.read()[1]["think"].reason == "NoDeployment"


def test_a_warning_is_an_event_of_the_workload(nodes: tuple[Emulator, System]) -> None:
    fleet, system = nodes
    with cluster(fleet, system, "first", workloads=SEVERAL_NODES) as mine:
        mine.announce("think", "4xGPU", "ProfileDrift", "large/4xGPU: token time × 1.20")
        mine.announce("talk", "GPU", "ProfileDrift", "chat/GPU: token time × 1.20")
    found = fleet.ask("/api/v1/namespaces/serving/events").json["items"]
    assert [(item["type"], item["reason"]) for item in found] == [("Warning", "ProfileDrift")] * 2
    about = [item["involvedObject"] for item in found]
    assert [(item["apiVersion"], item["kind"], item["name"]) for item in about] == [
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "think-4xgpu"),
        ("apps/v1", "Deployment", "talk-gpu"),
    ]
    assert "× 1.20" in found[0]["message"]


# --- other kinds of servers ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "driven", "measured"),
    mostly_slow(
        [
            (
                "versions",
                ["chat (chat-1)", "chat (chat-2)"],
                {"chat (chat-1)": 40, "chat (chat-2)": 40, "search": 0},
            ),
            ("shared-queue", ["premium", "free"], {"chat": 80}),
        ],
        1,
    ),
)
def test_versions_and_shared_queues_are_measured(
    name: str, driven: list[str], measured: dict[str, int]
) -> None:
    """40 requests a server in 4 s; the loop counts those of each planned server."""
    path = ROOT / "specs" / f"{name}.yaml"
    system = load_system(path)
    requests = Requests(np.full(40, 60), np.full(40, 8), np.linspace(0, 4000, 40))
    loads = [
        ServerLoad(server, system.in_plans[server].model, streams=True, rate_rps=10.0, requests=requests)
        for server in driven
    ]
    with emulated(path, "--scalable", "--startup", "0") as fleet, cluster(fleet, system, "mine") as workloads:
        given = {"system": str(path), "source": {"kind": "scrape", "url": f"{fleet.url}/emulator/targets"}}
        config = LoopConfig.model_validate(given | {"period": 2, "window": 4})
        records: list[dict[str, Any]] = []
        fetcher = Fetcher()
        source = ScrapeReader(fetcher.text, f"{fleet.url}/emulator/targets", config.window_s)
        loop = Controller(system, config, source, workloads, records.append, dry_run=True)
        loop.now()
        assert all(found.loss == 0 for found in drive(fleet.url, loads))
        record = loop.now()
        fetcher.close()
    assert record["holds"] == {}
    assert record["loads"].keys() == measured.keys()
    for server, load in record["loads"].items():
        span_s = record["inputs"]["readings"][server]["counts"]["span_s"]
        assert load["offered_rps"] * span_s == pytest.approx(measured[server], abs=0.1)
    assert {item["server"] for item in record["workloads"]} == measured.keys()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "routes",
            "routes.chat: the loop cannot measure routes; define their models as separate servers",
        ),
        (
            "shared-cards",
            "sharedCard: the loop cannot scale shared cards; remove sharedCard, so that",
        ),
    ],
)
def test_unsupported_systems_name_a_way_out(name: str, message: str, tmp_path: Path, run: Run) -> None:
    given = {"system": str(ROOT / "specs" / f"{name}.yaml"), "source": {"kind": "scrape", "url": "http://x"}}
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(given))
    is_one_line(run("loop", path, "--once"), message)
