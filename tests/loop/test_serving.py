"""The loop's own port: metrics, health, and the routes of the reference's control loop."""

from collections.abc import Iterator

import pytest
from simulated_fleet import DISCOVERY, SimulatedFleet, chat_system
from starlette.testclient import TestClient
from test_cycles import Loop

from optimizer.errors import SpecError
from rest_server.loop.config import LoopConfig
from rest_server.loop.controller import Controller
from rest_server.loop.scrape import ScrapeReader
from rest_server.loop.serving import application, serve_loop

CONFIG = LoopConfig.model_validate(
    {
        "system": "-",
        "source": {"kind": "scrape", "url": DISCOVERY},
        "kubernetes": {},
        "referenceRoutes": True,
    }
)


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet(chat_system(), 3)


@pytest.fixture
def loop(fleet: SimulatedFleet) -> Controller:
    reader = ScrapeReader(fleet.fetch, DISCOVERY, CONFIG.window_s)
    return Controller(chat_system(), CONFIG, reader, fleet, lambda _: None)


@pytest.fixture
def client(loop: Controller) -> Iterator[TestClient]:
    with TestClient(application(loop, with_reference_routes=True)) as found:
        yield found


def allocations(accelerator: str = "GPU", replicas: object = 1, server: str = "talk") -> object:
    return {"allocations": {server: {"accelerator": accelerator, "numReplicas": replicas}}}


def test_invoke_runs_a_cycle_and_collect_gives_its_servers(client: TestClient) -> None:
    assert client.get("/collect").status_code == 503
    assert client.get("/invoke").json()["holds"]["talk"].startswith("WindowNotFull")
    found = client.get("/collect").json()
    (server,) = found["servers"]
    assert (server["name"], server["class"], server["model"]) == ("talk", "Interactive", "chat")
    assert (server["currentAlloc"]["accelerator"], server["currentAlloc"]["numReplicas"]) == ("GPU", 3)
    load = {"arrivalRate": 120.0, "throughput": 0.0, "avgInTokens": 60, "avgOutTokens": 30}
    assert server["currentAlloc"]["load"] == load  # the document's, because none is measured
    assert found["kube-resources"] == {"talk": {"uid": "", "name": "talk-gpu", "space": "serving"}}


def test_update_scales_the_listed_servers_only(client: TestClient, fleet: SimulatedFleet) -> None:
    answer = client.post("/update", json=allocations(replicas=5))
    assert (answer.status_code, answer.json(), fleet.desired) == (200, "Done", 5)
    assert client.post("/update", json={"allocations": {}}).json() == "Done"
    assert fleet.desired == 5
    client.post("/update", json=allocations(replicas=0))
    assert fleet.desired == 1


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (allocations(server="other"), 400, "server 'other' does not exist"),
        (allocations(replicas=-1), 400, "must be a count, not -1"),
        (allocations(replicas="2"), 400, "must be a count, not '2'"),
        (allocations("TPU"), 409, "talk: no workload on 'TPU'"),
        ([], 400, "allocations: accelerator and numReplicas"),
        ({"allocations": {"talk": 3}}, 400, "allocations: accelerator and numReplicas"),
    ],
)
def test_a_wrong_update_scales_nothing(
    client: TestClient, fleet: SimulatedFleet, body: object, status: int, message: str
) -> None:
    answer = client.post("/update", json=body)
    assert answer.status_code == status
    assert message in answer.json()["message"]
    assert fleet.desired == 3


def test_without_the_lease_update_scales_nothing(
    client: TestClient, fleet: SimulatedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "may_act", lambda: "lease loop: held by other")
    assert client.post("/update", json=allocations(replicas=5)).status_code == 409
    assert fleet.desired == 3


def test_metrics_are_those_of_the_last_cycle(client: TestClient) -> None:
    assert "inferplan_loop_held" not in client.get("/metrics").text
    client.get("/invoke")
    text = client.get("/metrics").text
    for line in (
        "inferplan_loop_cycles_total 1.0",
        'inferplan_loop_held{reason="WindowNotFull",server="talk"} 1.0',
        'inferplan_loop_ready_replicas{accelerator="GPU",server="talk"} 3.0',
        "inferplan_loop_has_lease 1.0",
    ):
        assert line in text.splitlines()


def test_health_tells_whether_cycles_run(client: TestClient, loop: Controller) -> None:
    assert client.get("/healthz").text == "ok\n"
    loop.last_s -= 60
    assert client.get("/healthz").status_code == 503


def test_without_request_there_are_no_routes_of_the_reference(loop: Controller) -> None:
    with TestClient(application(loop, with_reference_routes=False)) as client:
        assert client.get("/invoke").status_code == 404
        assert client.post("/update", json={}).status_code == 404
    loop.config = CONFIG.model_copy(update={"port": 8099, "host": "0.0.0.0"})  # noqa: S104
    with pytest.raises(SpecError, match="loopback"):
        serve_loop(loop)


@pytest.mark.slow
def test_a_load_that_is_not_measured_ages() -> None:
    loop = Loop(replicas=3)
    assert loop.run(lambda _: 8, 90)[-1]["loads"]["talk"]["age_s"] == 0
    assert 'inferplan_loop_load_age_seconds{server="talk"} 0.0' in metrics_of(loop)
    loop.fleet.failing.add("fleet")
    ages = [record["loads"]["talk"]["age_s"] for record in loop.run(lambda _: 8, 150, 105)]
    assert ages == [15, 30, 45, 60]
    assert 'inferplan_loop_load_age_seconds{server="talk"} 60.0' in metrics_of(loop)
    loop.fleet.failing.clear()
    assert loop.run(lambda _: 8, 300, 165)[-1]["loads"]["talk"]["age_s"] == 0


@pytest.mark.slow
def test_metrics_show_drift_and_the_replicas_of_a_backlog() -> None:
    drifted = Loop(replicas=3, slowdown=1.25)
    drifted.run(lambda _: 7, 300)
    text = metrics_of(drifted)
    assert 'inferplan_loop_drift_alarm{profile="chat/GPU"} 1.0' in text
    assert 'inferplan_loop_token_time_ratio{profile="chat/GPU"} 1.' in text
    stepped = Loop(replicas=2)
    stepped.run(lambda t: 3 if t < 90 else 18, 165)
    text = metrics_of(stepped)
    assert 'inferplan_loop_planned_replicas{purpose="rate",server="talk"} ' in text
    assert 'inferplan_loop_planned_replicas{purpose="backlog",server="talk"} 0.0' not in text


def metrics_of(loop: Loop) -> str:
    with TestClient(application(loop.controller, with_reference_routes=False)) as client:
        return client.get("/metrics").text
