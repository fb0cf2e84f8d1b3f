"""The pages on which the service says what it is: complete in themselves, open, and safe to show."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import ELSEWHERE, opened
from fastapi.testclient import TestClient
from service_runs import Service, in_a_thread
from slow_cases import mostly_slow

import optimizer
from rest_server.app import create_app
from rest_server.description import ANSWERS
from rest_server.settings import Settings
from rest_server.v1.examples import SYSTEM

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "host": "localhost"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    Path(keys).write_text("read sesame\n", encoding="utf-8")
    return TestClient(create_app(Settings(api_key_files=(keys,))), base_url="http://localhost")


def test_programs_are_told_where_things_are(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.json() == {
        "name": "inferplan",
        "version": optimizer.__version__,
        "summary": "Capacity planner for LLM inference fleets.",
        "stateful": False,
        "links": {
            "docs": "/docs",
            "redoc": "/redoc",
            "openapi": "/openapi.json",
            "healthz": "/healthz",
            "readyz": "/readyz",
            "v1": "/v1",
        },
    }
    assert answer.headers["vary"] == "Accept"


@pytest.mark.slow
def test_json_answers_have_examples() -> None:
    paths = create_app(Settings(stateful=True)).openapi()["paths"]
    lacking = {
        path
        for path, operations in paths.items()
        for operation in operations.values()
        for status, answer in operation["responses"].items()
        if status == "200" and "example" not in answer["content"].get("application/json", {"example": ""})
    }
    assert lacking == {"/v1/routes", "/v1/routes/{name}"}  # the fleet of the examples has no routes


def test_the_example_of_a_plan_is_current() -> None:
    recorded = json.loads(ANSWERS.read_text(encoding="utf-8"))["post /v1/plan"]
    again = json.loads(optimizer.solve(optimizer.load_system(SYSTEM)).to_json())
    assert again == recorded, "python tests/tools/answer_examples.py"


def test_browsers_get_a_page_whose_links_work(client: TestClient) -> None:
    page = client.get("/", headers=BROWSER)
    assert page.headers["content-type"].startswith("text/html")
    assert f"inferplan {optimizer.__version__}" in page.text
    links = re.findall(r'href="([^"]+)"', page.text)
    assert "/docs" in links
    for link in links:
        assert client.get(link).status_code in {200, 503}  # not ready: no worker was started


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_pages_load_only_from_the_service_and_can_be_cached(client: TestClient, path: str) -> None:
    page = client.get(path, headers=BROWSER)
    loaded = re.findall(r'(?:src|href|spec-url|data-openapi)="([^"]+)"', page.text)
    assert len(loaded) >= 3
    for address in loaded:
        answer = client.get(address)
        assert answer.status_code == 200, address
        if address != "/openapi.json":
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "?" in address  # the version: another one has another address
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "<script>" not in page.text
    assert "http" not in policy


@pytest.mark.parametrize("name", ["nosuch.js", "..%2Fcore.py", "%2Fetc%2Fpasswd", "../core.py"])
def test_nothing_else_of_the_package_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/docs/assets/{name}", headers={"x-api-key": "sesame"}).status_code == 404


def test_the_pages_work_under_the_path_of_a_proxy() -> None:
    app = create_app(Settings())
    page = TestClient(app, base_url="http://localhost", root_path="/plans").get("/docs")
    assert 'data-openapi="/plans/openapi.json"' in page.text
    assert 'src="/plans/docs/assets/swagger-ui-bundle.js?' in page.text


def test_the_description_requires_a_key_where_the_service_does(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["apiKey"] == {
        "type": "apiKey", "in": "header", "name": "X-API-KEY", "description": "An API key.",
    }  # fmt: skip
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert document["security"] == [{"apiKey": []}, {"bearer": []}]
    operations = [(path, method) for path, item in document["paths"].items() for method in item]
    assert len(operations) > 10
    for path, method in operations:
        needed = document["paths"][path][method].get("security", document["security"])
        assert bool(needed) == (client.request(method, path).status_code == 401), (method, path)


@pytest.mark.slow
def test_without_keys_the_description_asks_for_none() -> None:
    document = create_app(Settings(stateful=True)).openapi()
    assert "security" not in document
    assert "securitySchemes" not in document["components"]
    assert not any(
        "security" in operation for item in document["paths"].values() for operation in item.values()
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with in_a_thread(stateful=True, allowed_hosts=(ELSEWHERE,)) as here:
        yield here


@pytest.mark.parametrize(
    ("path", "shown"),
    mostly_slow([("/", "li a"), ("/docs", ".opblock-tag-section"), ("/redoc", "a[href*='redocly.com']")], 1),
)
def test_pages_in_a_browser_request_nothing_from_other_hosts(
    browser: Any, service: Service, path: str, shown: str
) -> None:
    here = f"http://{ELSEWHERE}:{service.port}"
    requested, logged = opened(browser, here + path, shown)
    assert requested[0] == here + path
    assert path == "/" or f"{here}/openapi.json" in requested
    assert [url for url in requested if not url.startswith(f"{here}/")] == []
    assert logged == []


def test_no_page_loads_an_image_of_other_machines(client: TestClient) -> None:
    script = client.get("/docs/assets/redoc.standalone.js").text
    assert re.findall(r'src:"(?:https?:)?//[^"]+"', script) == []
    assert 'src:"data:,"' in script


def test_the_pages_are_open_but_nothing_else_is(client: TestClient) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/docs/assets/start.js"):
        assert client.get(path).status_code == 200
    assert client.post("/").status_code == 401
    assert client.get("/docs/assets/nosuch.js").status_code == 401
    assert client.get("/getServers").status_code == 401
    assert client.get("/docs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
