"""The routes of /v1 for studies: what the library answers, and refusals with their path."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from api_clients import client, refused
from builders import accelerator, document, profile, server, service_class
from fastapi.testclient import TestClient
from patience import until
from service_runs import in_a_thread

from optimizer import (
    Comparison,
    compare,
    draw,
    explain,
    find_candidates,
    load_system,
    make_figure,
    make_report,
    render_report,
    scale_loads,
    solve,
    vary_loads,
)
from optimizer.jobs.simulating import EffortOptions, SimulateOptions, repair_plan, simulate_plan
from optimizer.simulation.replicas import Effort
from rest_server.v1 import examples as api_examples

if TYPE_CHECKING:
    from optimizer.render.pages import PageFormat

Json = dict[str, Any]


@pytest.fixture(scope="module")
def service() -> Iterator[TestClient]:
    with client() as found:
        yield found


def scarce() -> Json:
    """Two servers on two types, of which the cheaper has too few units."""
    return document(
        [server("s"), server("t")], [accelerator("A"), accelerator("B", cost=60)], {"A": 1, "B": 9}
    )


# --- compare -------------------------------------------------------------------------------------------


def test_one_system_is_compared_without_and_with_its_limits(service: TestClient) -> None:
    answer = service.post("/v1/compare", json=scarce())
    assert answer.status_code == 200, answer.text
    assert answer.text == compare(load_system(scarce())).to_json()
    assert answer.json()["kind"] == "scarcity"
    assert answer.json()["total"]["difference"]["cost"] > 0


def test_a_changed_load_is_compared_with_the_load_before(service: TestClient) -> None:
    system = load_system(scarce())
    for query, after in (
        ("scale=2", scale_loads(system, 2)),
        ("random_load=7", vary_loads(system, np.random.default_rng(7))),
    ):
        answer = service.post(f"/v1/compare?{query}", json=scarce())
        assert answer.text == compare(system, after, transition=True).to_json(), query


def test_two_systems_plans_or_options_are_compared(service: TestClient) -> None:
    first, second = load_system(scarce()), load_system(scarce() | {"count": [{"type": "B", "count": 9}]})
    plan = solve(second)
    sides = {"first": scarce(), "second": plan.model_dump(by_alias=True, mode="json")}
    assert service.post("/v1/compare", json=sides).text == compare(first, plan).to_json()
    changed = {"first": scarce(), "secondOptions": {"unlimited": True}}
    expected = compare(first, second_options={"unlimited": True}, heterogeneous=True)
    assert service.post("/v1/compare?mixed=true", json=changed).text == expected.to_json()
    after = {"first": scarce(), "second": scarce(), "transition": True}
    found = Comparison.model_validate_json(service.post("/v1/compare", json=after).text)
    assert found.kind == "load_change"
    assert found.same


@pytest.mark.parametrize(
    ("query", "body", "path"),
    [
        ("", {"first": {"servers": 3}}, "first.servers"),
        ("", {"first": 3}, "first"),
        ("", {"second": api_examples.SYSTEM}, "first"),
        ("", {"first": api_examples.SYSTEM, "second": {"allocations": {}}}, "second.status"),
        ("", {"first": api_examples.SYSTEM, "secondOptions": {"gap": 2}}, "secondOptions.gap"),
        ("", {"first": api_examples.SYSTEM, "third": {}}, "third"),
        ("?scale=2", {"first": api_examples.SYSTEM, "second": api_examples.SYSTEM}, "scale"),
        ("?mixed=true&solver=greedy", api_examples.SYSTEM, "mixed"),
        ("?scale=2&random_load=1", api_examples.SYSTEM, "scale"),
        ("?scale=nan", api_examples.SYSTEM, "query.scale"),
        ("?unlimited=true", api_examples.SYSTEM, "unlimited"),
        ("?random_load=-1", api_examples.SYSTEM, "query.random_load"),
    ],
)
def test_a_wrong_comparison_is_refused_with_the_path(
    service: TestClient, query: str, body: Json, path: str
) -> None:
    assert refused(service.post(f"/v1/compare{query}", json=body), 422)["path"] == path


def test_a_finished_plan_alone_has_nothing_to_be_compared_with(service: TestClient) -> None:
    plan = solve(load_system(scarce())).model_dump(by_alias=True, mode="json")
    refused(
        service.post("/v1/compare", json={"first": plan}), 422, "name another to compare it with (second)"
    )


# --- batch sizes as a decision ---------------------------------------------------------------------------


def with_larger_batches() -> Json:
    """Return a system whose targets allow less than the profiles' batch, so that a smaller one is chosen."""
    classes = [service_class("gold", itl=20.0)]
    cards = [accelerator("A"), accelerator("B", cost=5.0)]
    models = [profile("m", card["name"], maxBatchSize=64) for card in cards]
    return document([server("s"), server("t")], cards, {"A": 9}, classes=classes, models=models)


@pytest.mark.parametrize("sizing", ["profile", "optimal"])
def test_batch_choice_is_a_query_parameter_wherever_it_is_a_flag(service: TestClient, sizing: str) -> None:
    source, query = with_larger_batches(), f"?batch_sizing={sizing}"
    system = load_system(source).with_options(batch_sizing=sizing)
    plan = solve(system)
    assert {pool.max_batch == 64 for pools in plan.allocations.values() for pool in pools} == {
        sizing == "profile"
    }
    assert service.post(f"/v1/plan{query}", json=source).text == plan.to_json()
    found = service.post(f"/v1/candidates{query}", json=source).json()["candidates"]
    assert found == json.loads(json.dumps(find_candidates(system).to_wire()))["candidates"]
    assert service.post(f"/v1/explain{query}", json=source).text == explain(system).to_json()
    assert service.post(f"/v1/compare{query}", json=source).text == compare(system).to_json()
    report = service.post(f"/v1/report{query}", json=source).json()
    assert report == json.loads(make_report(system).to_json())
    for route, more in (("simulate", "&requests=600"), ("figure", "")):
        assert service.post(f"/v1/{route}{query}{more}", json=source).status_code == 200


@pytest.mark.parametrize(
    "route", ["plan", "candidates", "compare", "explain", "simulate", "report", "figure"]
)
def test_another_choice_of_batch_sizes_is_refused(service: TestClient, route: str) -> None:
    answer = service.post(f"/v1/{route}?batch_sizing=best", json=with_larger_batches())
    assert refused(answer, 422)["path"] == "query.batch_sizing"


# --- explain, report, figure ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "server_name", "options"),
    [
        ("", None, {}),
        ("?server=t", "t", {}),
        ("?unlimited=true", None, {"unlimited": True}),
        ("?mixed=true", None, {"heterogeneous": True}),
    ],
)
def test_an_explanation_is_the_librarys(
    service: TestClient, query: str, server_name: str | None, options: Json
) -> None:
    answer = service.post(f"/v1/explain{query}", json=scarce())
    assert answer.status_code == 200, answer.text
    assert answer.text == explain(load_system(scarce()), server_name, **options).to_json()


def test_an_unknown_server_is_refused_with_the_known_ones(service: TestClient) -> None:
    answer = service.post("/v1/explain?server=nobody", json=scarce())
    assert refused(answer, 422, "s, t")["path"] == "server"


def test_a_report_is_the_librarys_in_every_format(service: TestClient) -> None:
    system = load_system(scarce())
    report = make_report(system)
    assert service.post("/v1/report", json=scarce()).text == report.to_json()
    formats: dict[PageFormat, str] = {"html": "text/html", "markdown": "text/markdown", "csv": "text/csv"}
    for page_format, media in formats.items():
        answer = service.post(f"/v1/report?format={page_format}", json=scarce())
        assert answer.headers["content-type"] == f"{media}; charset=utf-8"
        assert answer.content.decode() == render_report(report, system, page_format)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_figure_is_the_librarys_as_numbers_and_as_a_picture(service: TestClient) -> None:
    system = load_system(scarce())
    figure = make_figure(system, "latency", server="s")
    assert service.post("/v1/figure?kind=latency&server=s", json=scarce()).text == figure.to_json()
    answer = service.post("/v1/figure?kind=latency&server=s&format=svg", json=scarce())
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.content == draw(figure, "svg")
    changed = make_figure(scale_loads(system, 2), "plan", before=system)
    assert service.post("/v1/figure?scale=2", json=scarce()).text == changed.to_json()


def test_a_picture_of_the_whole_plan_takes_no_server(service: TestClient) -> None:
    answer = service.post("/v1/figure?kind=plan&server=s", json=scarce())
    assert refused(answer, 422)["path"] == "server"


def test_studies_run_in_processes_of_their_own() -> None:
    system = load_system(scarce())
    with in_a_thread(solver_processes=1) as found:
        assert found.ask("POST", "/v1/explain", scarce()).text == explain(system).to_json()
        page = found.ask("POST", "/v1/report?format=html", scarce()).text
    assert page == render_report(make_report(system), system, "html")


def test_a_study_that_takes_too_long_is_ended() -> None:
    slow = document([server(f"s{i}") for i in range(300)], [accelerator("A")], {"A": 100})
    slow["models"][0]["maxBatchSize"] = 2048
    slow["optimizer"] = {"batchSizing": "optimal"}
    with in_a_thread(solver_processes=1, request_timeout_s=0.5) as found:
        until(lambda: found.ask("POST", "/v1/explain", slow).status == 504)  # 408 where it came too late


def test_simulations_and_repaired_plans_are_the_librarys(service: TestClient) -> None:
    system, query = load_system(scarce()), "requests=600&seed=4"
    found = simulate_plan(system, SimulateOptions(requests=600, seed=4))
    assert service.post(f"/v1/simulate?{query}", json=scarce()).text == found.to_json()
    repaired = repair_plan(system, EffortOptions(requests=600, seed=4))
    assert service.post(f"/v1/simulate?repair=true&{query}", json=scarce()).text == repaired.to_json()
    report = make_report(system, effort=Effort(600, seed=4))
    assert service.post(f"/v1/report?simulate=true&{query}", json=scarce()).text == report.to_json()
    refused(service.post("/v1/simulate?requests=20", json=scarce()), 422, "requests")
