"""The routes of /v1 for studies: what the library answers, and refusals with their path."""

from typing import TYPE_CHECKING

import pytest
from api_clients import refused
from builders import Json, accelerator, document, server
from fastapi.testclient import TestClient
from patience import until
from service_runs import in_a_thread

from optimizer import (
    Comparison,
    compare,
    draw,
    explain,
    load_system,
    make_figure,
    make_report,
    render_report,
    solve,
)
from rest_server.v1 import examples as api_examples

if TYPE_CHECKING:
    from optimizer.render.pages import PageFormat

STATEFUL = False


def scarce() -> Json:
    """Two servers on two types, of which the cheaper has too few units."""
    return document(
        [server("s"), server("t")], [accelerator("A"), accelerator("B", cost=60)], {"A": 1, "B": 9}
    )


# --- compare -------------------------------------------------------------------------------------------


@pytest.mark.slow
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
        ("", {"first": api_examples.SYSTEM, "second": {"allocations": {}}}, "second.inferplanVersion"),
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


@pytest.mark.parametrize(
    "route", ["plan", "candidates", "compare", "explain", "simulate", "report", "figure"]
)
def test_another_choice_of_batch_sizes_is_refused(service: TestClient, route: str) -> None:
    answer = service.post(f"/v1/{route}?batch_sizing=best", json=scarce())
    assert refused(answer, 422)["path"] == "query.batch_sizing"


# --- explain, report, figure ---------------------------------------------------------------------------


def test_an_unknown_server_is_refused_with_the_known_ones(service: TestClient) -> None:
    answer = service.post("/v1/explain?server=nobody", json=scarce())
    assert refused(answer, 422, "s, t")["path"] == "server"


@pytest.mark.slow
def test_a_report_is_the_librarys_in_every_format(service: TestClient) -> None:
    system = load_system(scarce())
    report = make_report(system)
    formats: dict[PageFormat, str] = {"html": "text/html", "markdown": "text/markdown", "csv": "text/csv"}
    for page_format, media in formats.items():
        answer = service.post(f"/v1/report?format={page_format}", json=scarce())
        assert answer.headers["content-type"] == f"{media}; charset=utf-8"
        assert answer.content.decode() == render_report(report, system, page_format)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.slow
def test_a_figure_is_the_librarys_picture(service: TestClient) -> None:
    system = load_system(scarce())
    figure = make_figure(system, "latency", server="s")
    answer = service.post("/v1/figure?kind=latency&server=s&format=svg", json=scarce())
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.content == draw(figure, "svg")


def test_too_few_requests_are_refused(service: TestClient) -> None:
    refused(service.post("/v1/simulate?requests=20", json=scarce()), 422, "requests")


def test_a_picture_of_the_whole_plan_takes_no_server(service: TestClient) -> None:
    answer = service.post("/v1/figure?kind=plan&server=s", json=scarce())
    assert refused(answer, 422)["path"] == "server"


@pytest.mark.slow
def test_studies_run_in_processes_of_their_own() -> None:
    system = load_system(scarce())
    with in_a_thread(solver_processes=1) as found:
        assert found.ask("POST", "/v1/explain", scarce()).text == explain(system).to_json()
        page = found.ask("POST", "/v1/report?format=html", scarce()).text
    assert page == render_report(make_report(system), system, "html")


@pytest.mark.slow
def test_a_study_that_takes_too_long_is_ended() -> None:
    slow = document([server(f"s{i}") for i in range(300)], [accelerator("A")], {"A": 100})
    slow["models"][0]["maxBatchSize"] = 2048
    slow["optimizer"] = {"batchSizing": "optimal"}
    with in_a_thread(solver_processes=1, request_timeout_s=0.5) as found:
        until(lambda: found.ask("POST", "/v1/explain", slow).status == 504)  # 408 where it came too late
