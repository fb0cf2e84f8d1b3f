"""Every route that sizes, plans or studies a document states the warnings of `inferplan check`."""

import pytest
from builders import accelerator, document, server, service_class
from fastapi.testclient import TestClient

STATEFUL = False


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "route",
    [
        "plan",
        "candidates",
        "explain",
        "sweep?vary=load=1,2",
        "horizon?factors=1&factors=0.5",
        "simulate?requests=2000",
        "simulate?requests=2000&repair=true",
    ],
)
def test_answers_have_the_warnings_of_check(service: TestClient, route: str) -> None:
    classes = [service_class("gold"), service_class("empty", models=())]
    source = document([server("s")], [accelerator("A")], {"A": 5}, classes=classes)
    answer = service.post(f"/v1/{route}", json=source)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [item["message"] for item in body.get("warnings", body.get("plan", {}).get("warnings", []))] == [
        "the class 'empty' is empty: it has no targets, so nothing is promised"
    ]
