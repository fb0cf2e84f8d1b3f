"""A loop whose planner is a real stateful service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_runs import in_a_thread
from simulated_fleet import CHAT, chat_system
from test_cycles import CONFIG, Loop, workload, written

from optimizer import load_system
from optimizer.errors import InferplanError
from optimizer.schema.files import plain_value
from rest_server.client import Client
from rest_server.loop.config import LoopConfig, RemotePlanner
from rest_server.loop.deciding import ExistingReplicas
from rest_server.loop.loads import EstimatedLoad, with_measured_loads
from rest_server.loop.records import repeated
from rest_server.loop.remote import asked_targets
from rest_server.v1.models import LoadUpdate, ShapeUpdate


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


def test_shares_and_hits_are_sent_to_a_service(url: str) -> None:
    source = plain_value(CHAT, "fleet")
    assert isinstance(source, dict)
    (server,) = source["servers"]
    chat = {"name": "chat", "share": 0.9, "avgInTokens": 60, "avgOutTokens": 30}
    docs = {"name": "docs", "share": 0.1, "avgInTokens": 600, "avgOutTokens": 30}
    docs |= {"prefixTokens": 400, "prefixHitRate": 0.2}
    server |= {"name": "mixed", "currentAlloc": {"load": {"arrivalRate": "2/s", "shapes": [chat, docs]}}}
    system = load_system(source)
    with Client(url) as client:
        client.put(system.documented["mixed"])
        load = EstimatedLoad(
            5.0, 5.0, 0.0, in_tokens=300.0, out_tokens=30.0, shares=(0.5, 0.5), prefix_share=0.4
        )
        existing = {"mixed": {"GPU": ExistingReplicas(2, 2)}}
        targets = asked_targets(RemotePlanner(url=url), system, {"mixed": load}, existing)
        planned = next(one for one in client.servers() if one.name == "mixed").current.load
        with pytest.raises(InferplanError, match=r"mixed\.shapes\.doc: the load has no shape 'doc'; did you"):
            client.put_loads({"mixed": LoadUpdate(shapes={"doc": ShapeUpdate(share=0.5)})})
        with pytest.raises(InferplanError, match="the shares sum to"):
            client.put_loads({"mixed": LoadUpdate(shapes={"docs": ShapeUpdate(share=0.2)})})
        with pytest.raises(InferplanError, match="needs prefixTokens; give the length of the shared prefix"):
            client.put_loads({"mixed": LoadUpdate(shapes={"chat": ShapeUpdate(prefix_hit_rate=0.2)})})
        expected = with_measured_loads(system, {"mixed": load}, variation=False).servers["mixed"].current.load
        client.delete(system.documented["mixed"])
    assert planned == expected
    assert [shape.share for shape in planned.shapes] == [0.5, 0.5]
    assert planned.shapes[1].prefix_hit_rate == pytest.approx(0.4 * 330 / 200)
    assert targets["mixed"]["GPU"].replicas == 3
