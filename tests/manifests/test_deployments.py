"""Deployments, LeaderWorkerSets and HPAs of a plan from nothing: rendered, strictly valid, and as planned.

No real API server has confirmed them. LeaderWorkerSets have no published types: their pods are
checked as those of Deployments, and their own keys here.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json, accelerator, document, profile, server
from commands import ROOT, Run, is_one_line
from doc_pages import blocks, read_page
from test_manifests import kustomized, needs_kustomize, problems, scale_down_window_s

from optimizer import Plan, load_system, solve
from optimizer.render.alternatives import settings_elsewhere
from optimizer.render.cluster_table import ClusterTable, NodeEntry, default_nodes, label_value
from optimizer.render.deployments import Deployments
from optimizer.render.manifests import variants

GPUS = str(ROOT / "specs" / "gpus.yaml")
SMALL_NODES = "nodes: [{accelerator: A100, labels: {pool: a100}, cards: 2}]\n"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of `specs/gpus.yaml` in a file."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(solve(load_system(GPUS)).to_json())
    return path


def written(run: Run, plan: Path, *flags: object) -> list[Json]:
    found = run("manifests", plan, "--system", GPUS, *flags)
    assert (found.status, found.err) == (0, "")
    return list(yaml.load_all(found.out, yaml.CSafeLoader))


def flags_of(container: Json) -> dict[str, str]:
    words = [*container.get("command", []), *container.get("args", [])]
    return dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)


@pytest.mark.slow
@needs_kustomize
def test_deployments_of_gpus_from_nothing_render_and_are_valid(run: Run, plan: Path, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(written(run, plan, "--deployments")))
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]")
    items = list(yaml.safe_load_all(kustomized(tmp_path)))
    system = load_system(GPUS)
    assert len(items) == sum(len(system.profiles_of(item.model)) for item in system.servers.values())
    for item in items:
        assert problems(item) == ""
    items[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"gpu": {}}
    assert problems(items[0])


@pytest.mark.slow
def test_deployments_have_what_the_plan_says(run: Run, plan: Path) -> None:
    system, solved = load_system(GPUS), Plan.model_validate_json(plan.read_text())
    planned = {(name, pool.accelerator): pool for name, pools in solved.allocations.items() for pool in pools}
    limits = {pair: found.args[0].split("=")[1] for pair, found in settings_elsewhere(system, solved).items()}
    assert len(limits) > len(planned)
    assert not limits.keys() & planned.keys()
    found = written(run, plan, "--deployments")
    assert planned.keys() <= {of(item) for item in found}
    for item in found:
        pool, (name, on) = planned.get(of(item)), of(item)
        pod = item["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        cards = str(system.units_per_replica(name, on)[1])
        assert item["spec"]["replicas"] == (pool.num_replicas if pool else 0)
        assert flags_of(container)["tensor-parallel-size"] == cards
        assert container["resources"] == {
            "limits": {"nvidia.com/gpu": cards},
            "requests": {"nvidia.com/gpu": cards},
        }
        batch = flags_of(container).get("max-num-seqs")
        assert batch == (str(pool.max_batch) if pool else limits.get((name, on)))
        assert flags_of(container)["served-model-name"] == system.servers[name].model
        assert list(pod["nodeSelector"]) == ["nvidia.com/gpu.product"]
        port = container["ports"][0]["containerPort"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/health", "port": port}
        labels = item["spec"]["template"]["metadata"]["labels"]
        assert labels["inferplan_server"] == name
        assert item["spec"]["selector"]["matchLabels"].items() <= labels.items()


def of(item: Json) -> tuple[str, str]:
    notes = item["metadata"]["annotations"]
    return notes["inferplan.dev/server"], notes["inferplan.dev/accelerator"]


@pytest.mark.slow
def test_the_table_is_written_edited_and_read(run: Run, plan: Path, tmp_path: Path) -> None:
    (table,) = written(run, plan, "--cluster-table")
    assert {entry["model"]: entry["source"] for entry in table["models"]}["qwen3-32b"] == "Qwen/Qwen3-32B"
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(table))
    same = written(run, plan, "--deployments", "--cluster", path)
    assert same == written(run, plan, "--deployments")
    for node in table["nodes"]:
        node |= {"labels": {"pool": node["accelerator"].lower()}, "resource": "amd.com/gpu"}
    for model in table["models"]:
        model |= {"image": "mine:1", "source": "/models/x", "args": ["--max-model-len=4096"]}
    path.write_text(yaml.safe_dump(table))
    for item in written(run, plan, "--deployments", "--cluster", path, "--no-replicas"):
        assert "replicas" not in item["spec"]
        pod = item["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert (container["image"], container["command"][2]) == ("mine:1", "/models/x")
        assert flags_of(container)["max-model-len"] == "4096"
        assert list(container["resources"]["limits"]) == ["amd.com/gpu"]
        assert pod["nodeSelector"]["pool"] in of(item)[1].lower()


@pytest.mark.slow
def test_a_replica_on_several_nodes_is_a_group(run: Run, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SMALL_NODES)
    found = written(run, plan, "--deployments", "--cluster", path)
    groups = [item for item in found if item["kind"] == "LeaderWorkerSet"]
    assert {of(item)[1] for item in groups} == {"4xA100"}
    for item in groups:
        assert item["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
        assert item["spec"].keys() == {"replicas", "leaderWorkerTemplate"}
        group = item["spec"]["leaderWorkerTemplate"]
        assert group.keys() == {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}
        assert (group["size"], group["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
        leader, worker = (group[f"{role}Template"]["spec"]["containers"][0] for role in ("leader", "worker"))
        for template in (group["leaderTemplate"], group["workerTemplate"]):
            assert problems(deployment_of(template)) == ""
            assert template["spec"]["nodeSelector"] == {"pool": "a100"}
        assert leader["resources"]["limits"] == worker["resources"]["limits"] == {"nvidia.com/gpu": "2"}
        assert flags_of(leader) == flags_of(worker)
        assert flags_of(leader)["tensor-parallel-size"] == "4"
        assert flags_of(leader)["node-rank"] == "$(LWS_WORKER_INDEX)"
        assert ("--headless" in leader["command"], "--headless" in worker["command"]) == (False, True)
        assert ("readinessProbe" in leader, "readinessProbe" in worker) == (True, False)


def deployment_of(template: Json) -> Json:
    labels = template["metadata"]["labels"]
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--scaled-objects",), ("--prometheus", "http://p:9090"), ("--hpa",), ()])
def test_groups_are_scaled_as_deployments_are(
    run: Run, plan: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SMALL_NODES)
    for item in written(run, plan, "--cluster", path, *flags):
        kind = item["kind"] if not flags else item["spec"]["scaleTargetRef"]["kind"]
        assert kind == ("LeaderWorkerSet" if of(item)[1] == "4xA100" else "Deployment")
        if kind == "LeaderWorkerSet" and not flags:  # a merge would replace its containers
            assert item["spec"].keys() == {"replicas"}


@pytest.mark.parametrize(
    ("cards", "most", "nodes"), [(4, None, 1), (4, 8, 1), (16, 8, 2), (12, 8, 2), (9, 4, 3)]
)
def test_nodes_of_a_replica_have_equal_cards(cards: int, most: int | None, nodes: int) -> None:
    table = ClusterTable(nodes=(NodeEntry(accelerator="A", labels={"a": "b"}, cards=most),))
    assert table.nodes_of("A", "A", cards) == nodes


def test_labels_of_unknown_cards_are_the_planners_own() -> None:
    assert default_nodes("My card #1").labels == {"inferplan.dev/accelerator-type": "My-card--1"}
    assert default_nodes("h100").labels == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert len(label_value("x" * 100 + "!")) == 63


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(read_page("kubernetes.md"))
    wanted = [block for block in page if block.section in {"Deployments from nothing", "Without KEDA"}]
    (table,) = [block.text for block in wanted if block.language == "yaml"]
    commands = [line for block in wanted if block.language == "sh" for line in block.text.splitlines()]
    ours = [line.split()[1:] for line in commands if line.startswith("inferplan ")]
    assert len(ours) == 5
    assert [run(*words).status for words in ours] == [0] * 5
    (tmp_path / "cluster.yaml").write_text(table)
    assert run(*ours[2]).status == 0
    text = (tmp_path / "deployments.yaml").read_text()
    assert "image: vllm/vllm-openai:v0.12.0" in text
    assert "--max-model-len=16384" in text


# --- other features of documents --------------------------------------------------------------------------


def deployments(system: Any, table: ClusterTable | None = None) -> Iterator[Json]:
    found = variants(solve(system), system, table or ClusterTable())
    writer = Deployments(system, table or ClusterTable(), "serving", "engine")
    return map(writer.of, found)


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["queue-servers", "versions", "routes", "shared-queue", "robust", "small"])
def test_every_placement_of_a_sample_has_a_valid_deployment(sample: str) -> None:
    system = load_system(f"sample:{sample}")
    planned = {
        (name, pool.accelerator) for name, pools in solve(system).allocations.items() for pool in pools
    }
    found = list(deployments(system))
    assert planned <= {of(item) for item in found}
    assert [problems(item) for item in found if problems(item)] == []


@pytest.mark.slow
def test_a_batch_server_has_its_own_image_and_settings() -> None:
    for item in deployments(load_system("sample:queue-servers")):
        (container,) = item["spec"]["template"]["spec"]["containers"]
        assert "vllm" not in str(item)
        assert "command" not in container
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        assert variables == {"MAX_BATCH": "4", "BATCH_WINDOW_MS": "1000", "PORT": "8080"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/health_check", "port": 8080}


def test_shared_cards_need_a_resource_of_the_table(run: Run, tmp_path: Path) -> None:
    system = load_system("sample:shared-cards")
    path = tmp_path / "plan.json"
    path.write_text(solve(system).to_json())
    flags = ("--system", "sample:shared-cards", "--deployments")
    message = "--cluster: no resource for 'detect' on a part of T4; name that of the device plugin: nodes:"
    is_one_line(run("manifests", path, *flags), message)
    entry = NodeEntry(accelerator="T4", labels={"gpu": "t4"}, shared_resource="nvidia.com/gpu.shared")
    for item in deployments(system, ClusterTable(nodes=(entry,))):
        assert problems(item) == ""
        containers = item["spec"]["template"]["spec"]["containers"]
        if "shared" in item["metadata"]["name"]:
            assert len({one["ports"][0]["containerPort"] for one in containers}) == len(containers) > 1
            assert {*containers[0]["resources"]["limits"]} == {"nvidia.com/gpu.shared"}


def test_a_slice_is_a_resource_of_its_own() -> None:
    part = {"card": "A", "memory": 4, "compute": 3}
    half = accelerator("half") | {"type": "A", "memSize": 8, "slice": part}
    source = document(
        [server("a", sharedCard=True), server("b", sharedCard=True)],
        [
            accelerator("A"),
            half,
        ],
        {"A": 1},
    )
    source["models"] = [profile("m", "half") | {"memory": 4}]
    source["accelerators"][0]["memSize"] = 16
    system = load_system(source)
    with pytest.raises(Exception, match=r"nodes: \{accelerator: half, resource: nvidia.com/mig-…\}"):
        list(deployments(system))
    entry = NodeEntry(accelerator="half", labels={}, resource="nvidia.com/mig-3g.20gb")
    (item,) = [
        one for one in deployments(system, ClusterTable(nodes=(entry,))) if "shared" in str(one["metadata"])
    ]
    containers = item["spec"]["template"]["spec"]["containers"]
    assert [one["resources"]["limits"] for one in containers] == [{"nvidia.com/mig-3g.20gb": "1"}] * 2
    assert problems(item) == ""


def test_rented_servers_have_no_deployment_and_it_is_said(run: Run, tmp_path: Path) -> None:
    rental = {"inPerMillion": 0, "outPerMillion": 0.01, "ttft": 60, "itl": 20}
    source = document([server("s", external=rental)], [accelerator("A")], {"A": 9})
    (tmp_path / "system.yaml").write_text(yaml.safe_dump(source))
    (tmp_path / "plan.json").write_text(solve(load_system(source)).to_json())
    found = run("manifests", tmp_path / "plan.json", "--system", tmp_path / "system.yaml", "--deployments")
    assert "# s: rented, so it has no Deployment" in found.out


# --- without KEDA -----------------------------------------------------------------------------------------


def desired_by_hpa(spec: Json, metric: float, current: int) -> int:
    """Return the replicas of an HPA by the documented formula for external metrics."""
    ((source,), _) = spec["metrics"], spec["behavior"]
    target = source["external"]["target"]
    per_replica = {"AverageValue": 1.0, "Value": float(max(current, 1))}[target["type"]]
    goal: float = float(target[re.sub("^A", "a", target["type"])])
    wanted = math.ceil(metric * per_replica / goal)
    return min(max(wanted, int(spec["minReplicas"])), int(spec["maxReplicas"]))


@pytest.mark.slow
def test_an_hpa_follows_the_desired_replicas(run: Run, plan: Path) -> None:
    for item in written(run, plan, "--hpa", "--stabilised"):
        assert problems(item) == ""
        for current in (0, 1, 3, 50):
            assert [desired_by_hpa(item["spec"], n, current) for n in range(8)] == list(range(8))
        broken = {**item["spec"], "metrics": [{"external": {"target": {"type": "Value", "Value": "1"}}}]}
        assert desired_by_hpa(broken, 3, 3) == 9
        assert item["spec"]["behavior"]["scaleUp"]["tolerance"] == "0"
        assert item["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 0


def test_each_hpa_has_a_rule_of_the_adapter(run: Run, plan: Path) -> None:
    (values,) = written(run, plan, "--adapter-rules")
    rules = {rule["name"]["as"]: rule for rule in values["rules"]["external"]}
    hpas = written(run, plan, "--hpa")
    names = [item["spec"]["metrics"][0]["external"]["metric"]["name"] for item in hpas]
    assert sorted(names) == sorted(rules)
    assert len(set(names)) == len(hpas)
    for rule in rules.values():
        assert rule["metricsQuery"] == f"max({rule['seriesQuery']})"
        assert rule["resources"] == {"namespaced": False}
    assert {item["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] for item in hpas} == {300}


@pytest.mark.slow
def test_an_hpa_and_a_scaled_object_agree(run: Run, plan: Path) -> None:
    objects = {of(item): item for item in written(run, plan, "--scaled-objects")}
    for item in written(run, plan, "--hpa"):
        keda = objects[of(item)]
        assert item["spec"]["scaleTargetRef"] == keda["spec"]["scaleTargetRef"]
        assert item["spec"]["maxReplicas"] == keda["spec"]["maxReplicaCount"]
        assert item["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == scale_down_window_s(
            keda
        )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--deployments",), "--deployments: add --system PATH"),
        (("--cluster-table",), "--cluster-table: add --system PATH"),
        (("--cluster", "x.yaml"), "--cluster: add --system PATH"),
        (("--hpa", "--scaled-objects"), "not allowed with argument"),
        (("--hpa", "--prometheus", "http://p:9090"), "not allowed with argument"),
        (("--system", GPUS, "--deployments", "--cluster", "absent.yaml"), "absent.yaml"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    run: Run, plan: Path, flags: tuple[str, ...], message: str
) -> None:
    found = run("manifests", plan, *flags)
    assert (found.status, found.out) == (2, "")
    assert message in found.err.splitlines()[-1]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    [
        "nodes: [{accelerator: A, labels: {'a b': c}}]",
        "nodes: [{accelerator: A, labels: {a: 'b c'}}]",
        "nodes: [{accelerator: A, labels: {}, cards: 0}]",
        "nodes: [{accelerator: A, labels: {}, resource: 'a b'}]",
        "models: [{model: m, colour: red}]",
    ],
)
def test_a_table_that_no_cluster_takes_is_refused(run: Run, plan: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    is_one_line(run("manifests", plan, "--system", GPUS, "--deployments", "--cluster", path), str(path))


@pytest.mark.slow
def test_settings_elsewhere_leave_routes_rentals_and_sharing_out() -> None:
    """A route needs both of its servers; on an accelerator of only one of them there is no such plan."""
    for sample in ("everything", "shared-cards", "multi-model-service"):
        system = load_system(f"sample:{sample}")
        found = settings_elsewhere(system, solve(system))
        assert found
        assert all(settings.args or settings.annotations for settings in found.values())


@pytest.mark.slow
def test_the_pod_monitor_finds_the_replicas(run: Run, plan: Path) -> None:
    monitor = yaml.safe_load(
        (ROOT / "manifests" / "components" / "prometheus" / "podmonitor.yaml").read_text()
    )
    (asked,) = monitor["spec"]["selector"]["matchExpressions"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for item in written(run, plan, "--deployments"):
        template = item["spec"]["template"]
        assert {asked["key"], *monitor["spec"]["podTargetLabels"]} <= template["metadata"]["labels"].keys()
        assert template["spec"]["containers"][0]["ports"][0]["name"] == endpoint["port"]
        assert item["metadata"]["namespace"] == monitor["metadata"]["namespace"]
