"""A loop whose planner is a real stateful service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_runs import in_a_thread
from simulated_fleet import CHAT, chat_system
from test_cycles import CONFIG, Loop, workload, written

from rest_server.client import Client
from rest_server.loop.config import LoopConfig, RemotePlanner
from rest_server.loop.records import repeated


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("service") / "fleet.yaml"
    path.write_text(CHAT)
    with in_a_thread(stateful=True, stabilise="recommended") as service:
        found = f"http://127.0.0.1:{service.port}"
        with Client(found) as client:
            client.import_fleet(str(path))
        yield found


def config(url: str) -> LoopConfig:
    return CONFIG.model_copy(update={"planner": RemotePlanner(url=url)})


@pytest.mark.slow
def test_targets_of_the_service_are_applied_and_repeat(url: str, tmp_path: Path) -> None:
    loop = Loop(config(url), replicas=2)
    records = loop.run(lambda t: 3 if t < 90 else 18, 240)
    assert workload(records[0])["reason"] == "WindowNotFull"
    assert workload(records[-1])["replicas"] >= 5
    assert loop.fleet.desired == workload(records[-1])["replicas"]
    path = written(loop.records, tmp_path / "records.jsonl")
    assert not any(differences for _, differences in repeated(chat_system(), config(url), path))


def test_an_absent_service_holds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rest_server.client.sending.FIRST_WAIT_S", 0.01)
    loop = Loop(config("http://127.0.0.1:9"), replicas=3)
    records = loop.run(lambda _: 18, 90)
    assert workload(records[-1])["reason"] == "PlanFailed"
    assert "127.0.0.1:9" in records[-1]["holds"]["talk"]
    assert loop.fleet.desired == 3
