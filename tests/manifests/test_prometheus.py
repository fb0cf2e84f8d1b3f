"""A real Prometheus scrapes the service, and answers what the dashboard, the rules and KEDA ask it."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from builders import Json, accelerator, document, running, server, service_class
from patience import PATIENCE_S
from prometheus_runs import COMPONENT, asked, needs_prometheus, scraping
from service_runs import Service, in_a_thread

from optimizer import load_system, solve
from optimizer.render.autoscalers import adapter_rules, prometheus_trigger
from optimizer.render.manifests import variants

pytestmark = needs_prometheus
FLEET = document(
    [
        server("serving/chat", replicas=3, current=running("A", 1)),
        server("lost", current=running("A", 1)) | {"class": "hard"},
    ],
    [accelerator("A")],
    {"A": 9},
) | {"serviceClasses": [service_class("gold", itl=50), service_class("hard", itl=0.001)]}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with in_a_thread(stateful=True, metric_aliases=("wva", "inferno")) as here:
        assert here.ask("PUT", "/v1/fleet", FLEET).status == 200
        loads = {"serving/chat": {"replicas": {"A": {"ready": 1, "pending": 1}}}}
        assert here.ask("POST", "/v1/loads", loads).status == 200
        yield here


@pytest.fixture(scope="module")
def prometheus(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a Prometheus answers that has scraped the service twice."""
    job = {"job_name": "inferplan", "static_configs": [{"targets": [f"127.0.0.1:{service.port}"]}]}
    with scraping(tmp_path_factory.mktemp("prometheus"), job, 1) as url:
        yield url


def panels() -> list[Json]:
    found: list[Json] = json.loads((COMPONENT / "dashboard.json").read_text())["panels"]
    return found


NEEDS_TIME = re.compile(r"\b(rate|increase|histogram_quantile)\(")
"""Functions that need more than two scrapes to say something."""


@pytest.mark.slow
def test_every_panel_of_the_dashboard_has_an_answer(prometheus: str) -> None:
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(queries) > 15
    for query in queries:
        rows = asked(prometheus, query.replace("$server", ".*"))
        assert rows or NEEDS_TIME.search(query), query
    assert asked(prometheus, "inferplan_no_such_metric") == []


def test_dashboard_and_rules_use_existing_metrics(prometheus: str) -> None:
    names = {row["metric"]["__name__"] for row in asked(prometheus, '{__name__=~"inferplan_.*"}')}
    text = (COMPONENT / "dashboard.json").read_text() + (COMPONENT / "prometheusrule.yaml").read_text()
    used = set(re.findall(r"\binferplan_[a-z_]+\b", text))
    assert len(used) > 12
    assert used <= names


def test_every_rule_is_evaluated(prometheus: str) -> None:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=PATIENCE_S) as answer:  # noqa: S310
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 9
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    for rule in rules:
        asked(prometheus, rule["query"])


def test_kedas_query_gives_one_number(prometheus: str) -> None:
    found = variants(solve(load_system(FLEET)))
    (chat,) = [each for each in found if each.server == "serving/chat"]
    (row,) = asked(prometheus, prometheus_trigger(chat, prometheus)["metadata"]["query"])
    assert float(row["value"][1]) == 3
    (alias,) = asked(prometheus, 'wva_desired_replicas{variant_name="chat"}')
    assert float(alias["value"][1]) == 3
    assert alias["metric"]["namespace"] == "serving"


def test_the_adapters_rule_finds_and_reads_the_same_number(prometheus: str) -> None:
    found = variants(solve(load_system(FLEET)))
    (chat,) = [each for each in found if each.server == "serving/chat"]
    (rule,) = adapter_rules([chat])["rules"]["external"]
    assert len(asked(prometheus, rule["seriesQuery"])) == 1
    (row,) = asked(prometheus, rule["metricsQuery"])
    assert float(row["value"][1]) == 3


def test_the_metrics_pass_their_linter_and_broken_ones_do_not(service: Service) -> None:
    text = service.ask("GET", "/metrics").text
    for given, passes in ((text, True), (text + "# TYPE bad_total gauge\nbad_total{x=} 1\n", False)):
        run = subprocess.run(
            ["promtool", "check", "metrics"], input=given, text=True, capture_output=True, check=False
        )
        assert (run.returncode == 0) == passes, run.stderr
