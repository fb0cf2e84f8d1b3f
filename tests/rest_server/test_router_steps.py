"""What requests pass at the router of an emulated fleet: routes, versions, caches, queues, services, keys."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from commands import Run
from emulated import Emulator, emulated
from patience import PATIENCE_S, until

from rest_server.emulator.steps.forwarded import PATH_HEADER, read_notes

DOCUMENT = """
accelerators:
  - {name: GPU, type: GPU, cost: 50, memSize: 80, place: here}
count: [{type: GPU, count: 40}]
models:
  - {name: one, acc: GPU, queueModel: continuous, maxBatchSize: 2, kvCapacity: 4000,
     perfParms: {alpha: 10.0, beta: 0.02, gamma: 0.0001}}
  - {name: two, acc: GPU, queueModel: continuous, maxBatchSize: 2, kvCapacity: 4000,
     perfParms: {alpha: 11.0, beta: 0.02, gamma: 0.0001}}
  - {name: mix, acc: GPU, queueModel: continuous, maxBatchSize: 2, kvCapacity: 4000,
     perfParms: {alpha: 10.0, beta: 0.02, gamma: 0.0001}}
  - {name: big, acc: GPU, maxBatchSize: 8, decodeParms: {alpha: 20, beta: 0.2},
     prefillParms: {gamma: 12, delta: 0.01}}
  - {name: tiny, acc: GPU, maxBatchSize: 8, decodeParms: {alpha: 5, beta: 0.1},
     prefillParms: {gamma: 3, delta: 0.01}}
  - {name: vision, acc: GPU, maxBatchSize: 2, batchParms: {base: 20 ms}}
serviceClasses:
  - name: Gold
    priority: 1
    modelTargets:
      - {model: one, slo-itl: 60, slo-ttft: 2000}
      - {model: mix, slo-itl: 60, slo-ttft: 2000}
      - {model: big, slo-itl: 60, slo-ttft: 2000}
      - {model: tiny, slo-itl: 60, slo-ttft: 2000}
      - {model: vision, latency: [{percentile: 99, ms: 4 s}]}
  - {name: Free, priority: 3, modelTargets: [{model: mix, slo-itl: 60, slo-ttft: 20000}]}
servers:
  - name: chat
    class: Gold
    model: one
    split: [{model: one, weight: 0.5}, {model: two, weight: 0.5}]
    place: there
    currentAlloc: {load: {arrivalRate: 4/s, avgInTokens: 40, avgOutTokens: 20}}
  - {name: eyes, class: Gold, model: vision, cacheHitRate: 0.5, currentAlloc: {load: {arrivalRate: 4/s}}}
  - {name: gold, class: Gold, model: mix, sharedQueue: both,
     currentAlloc: {load: {arrivalRate: 3/s, avgInTokens: 40, avgOutTokens: 20}}}
  - {name: free, class: Free, model: mix, sharedQueue: both,
     currentAlloc: {load: {arrivalRate: 3/s, avgInTokens: 40, avgOutTokens: 20}}}
  - {name: ask-tiny, class: Gold, model: tiny}
  - {name: ask-big, class: Gold, model: big}
  - name: rented
    class: Gold
    model: one
    external: {inPerMillion: 100, outPerMillion: 400, ttft: 50, itl: 5}
    accelerators: []
    currentAlloc: {load: {arrivalRate: 3/s, avgInTokens: 40, avgOutTokens: 20}}
routes:
  - name: ask
    small: ask-tiny
    large: ask-big
    arrivalRate: 100/s
    maxLoss: 20%
    rerun: true
    kinds:
      - {name: simple, share: 0.5, inTokens: 40, outTokens: 20, loss: 0.5%, miss: 10%}
      - {name: hard, share: 0.5, inTokens: 40, outTokens: 20, loss: 30%, wrong: 40%}
optimizer: {networkMs: {here: {there: 150}}}
"""
"""Every feature that a router has, on small models; figures made for these tests."""
TOKENS = {"prompt": "a b c", "max_tokens": 2, "ignore_eos": True}


def noted(
    fleet: Emulator, server: str, body: dict[str, Any], path: str = "/v1/completions", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Return status, notes in the headers and text of an answer."""
    address = urlsplit(fleet.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE_S)
    named = {"x-inferplan-server": server} if server else {}
    connection.request("POST", path, json.dumps(body), named | headers)
    reply = connection.getresponse()
    found = reply.status, read_notes(reply.headers.get(PATH_HEADER.decode(), "")), reply.read().decode()
    connection.close()
    return found


def counted(fleet: Emulator, name: str) -> dict[str, float]:
    """Return the samples of a metric of the router, by labels."""
    found = re.findall(rf"^{name}{{(.*)}} (.*)$", fleet.ask("/metrics").text, re.MULTILINE)
    return {labelled: float(value) for labelled, value in found}


@pytest.mark.slow
def test_cache_answers_its_share_as_a_replica(fleet: Emulator) -> None:
    notes = [noted(fleet, "eyes", {}, "/predict") for _ in range(40)]
    hits = [text for _, note, text in notes if note["cache"] == "hit"]
    assert 8 <= len(hits) <= 32  # 40 draws of 0.5, more than 3.5 deviations
    assert all(json.loads(text)["latency_ms"] == 0 for text in hits)
    assert all(json.loads(text)["model"] == "vision" for _, _, text in notes)
    found = counted(fleet, "inferplan_router_cache_requests_total")
    assert found['server="eyes",result="hit"'] == len(hits)


def test_versions_get_requests_by_weight_from_afar(fleet: Emulator) -> None:
    began_s = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: noted(fleet, "chat", TOKENS), range(40)))
    assert {status for status, _, _ in answers} == {200}
    models = [note["version"] for _, note, _ in answers]
    assert 8 <= models.count("two") <= 32
    assert {note["server"] for _, note, _ in answers} == {"chat (one)", "chat (two)"}
    assert time.monotonic() - began_s > 5 * 0.15  # five times the round trip to its place
    assert noted(fleet, "", TOKENS | {"model": "chat"})[1]["version"] in {"one", "two"}


def test_failing_version_loses_no_request_and_is_rolled_back(fleet: Emulator) -> None:
    (second,) = fleet.replicas_of("chat (two)")
    fleet.ask(f"/emulator/replicas/{quote(second['id'])}", {"state": "out-of-memory"})
    wanted = {"to": "two", "steps": [0.8, 1], "seconds": 30}
    assert fleet.ask("/emulator/versions/chat", wanted).json["weights"] == {
        "one": pytest.approx(0.2),
        "two": 0.8,
    }
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: noted(fleet, "chat", TOKENS), range(40)))
    assert {(status, note["version"]) for status, note, _ in answers} == {(200, "one")}
    shown = fleet.ask("/emulator/versions").json["chat"]
    assert (shown["rollout"]["state"], shown["weights"]) == ("rolled back", {"one": 0.5, "two": 0.5})
    assert shown["rollout"]["requests"] == shown["rollout"]["errors"] >= 10
    assert shown["errors"]["two"] >= 10
    fleet.ask(f"/emulator/replicas/{quote(second['id'])}", {"state": "ready"})


@pytest.mark.slow
def test_roll_out_reaches_all_requests_in_steps(fleet: Emulator) -> None:
    wanted = {"to": "two", "steps": [0.7, 1], "seconds": 0.1}
    assert fleet.ask("/emulator/versions/chat", wanted).status == 200
    until(lambda: fleet.ask("/emulator/versions/chat").json["rollout"]["state"] == "done")
    assert {noted(fleet, "chat", TOKENS)[1]["version"] for _ in range(5)} == {"two"}
    back = {"to": "one", "steps": [0.5], "seconds": 0.1}
    fleet.ask("/emulator/versions/chat", back)
    until(lambda: fleet.ask("/emulator/versions/chat").json["weights"] == {"one": 0.5, "two": 0.5})


@pytest.mark.parametrize(
    ("server", "body", "status", "text"),
    [
        ("eyes", {"to": "two"}, 404, "has no versions"),
        ("chat", {"to": "three"}, 400, "to: must be one of one, two"),
        ("chat", {"to": "two", "steps": [2]}, 400, "steps: must be a list of shares"),
        ("chat", {"to": "two", "seconds": 0}, 400, "seconds: must be a number above 0"),
        ("chat", {"to": "two", "maxErrorRate": 2}, 400, "maxErrorRate: must be a number from 0 to 1"),
    ],
)
def test_wrong_roll_outs_are_named(
    fleet: Emulator, server: str, body: dict[str, Any], status: int, text: str
) -> None:
    answer = fleet.ask(f"/emulator/versions/{server}", body)
    assert (answer.status, text in answer.text) == (status, True)


def test_route_divides_and_answers_again_what_was_wrong(fleet: Emulator) -> None:
    with ThreadPoolExecutor(8) as pool:
        hard = list(
            pool.map(lambda _: noted(fleet, "ask", TOKENS, **{"x-inferplan-kind": "hard"})[1], range(60))
        )
        simple = [noted(fleet, "ask", TOKENS, **{"x-inferplan-kind": "simple"})[1] for _ in range(20)]
    ways = [note["to"] for note in hard]
    # 0.86 of the hard ones go to the small model, and 0.11 of those again to the large one: 0.76, 0.14, 0.10.
    assert 30 <= ways.count("small") <= 57
    assert ways.count("both") >= 1
    assert {note["server"] for note in hard if note["to"] != "small"} == {"ask-big"}
    assert {note["to"] for note in simple} <= {"small", "large"}
    assert {note["server"] for note in simple if note["to"] == "small"} == {"ask-tiny"}
    assert noted(fleet, "ask", TOKENS)[1]["kind"] in {"simple", "hard"}
    found = counted(fleet, "inferplan_router_route_requests_total")
    assert found['route="ask",kind="hard",to="both"'] >= ways.count("both")
    refused = noted(fleet, "ask", TOKENS, **{"x-inferplan-kind": "odd"})
    assert (refused[0], "use simple, hard" in refused[2]) == (400, True)


def test_high_priority_overtakes_in_a_full_shared_queue(fleet: Emulator) -> None:
    ended: list[str] = []

    def ask(server: str) -> None:
        assert noted(fleet, server, TOKENS | {"max_tokens": 15})[0] == 200
        ended.append(server)

    with ThreadPoolExecutor(24) as pool:
        sent = [pool.submit(ask, "free") for _ in range(14)]
        waiting = 'queue="both"'
        until(lambda: counted(fleet, "inferplan_router_queue_waiting")[waiting] >= 8)
        sent += [pool.submit(ask, "gold") for _ in range(4)]
        for one in sent:
            one.result()
    # Two slots: when the four of high priority have ended, at least four of the others still wait.
    assert "gold" not in ended[-4:]
    assert counted(fleet, "inferplan_router_queue_waiting")[waiting] == 0


@pytest.mark.slow
def test_client_that_hangs_up_leaves_the_shared_queue(fleet: Emulator) -> None:
    address = urlsplit(fleet.url)
    body = json.dumps(TOKENS | {"max_tokens": 200}).encode()
    with ThreadPoolExecutor(4) as pool:
        held = [pool.submit(noted, fleet, "free", TOKENS | {"max_tokens": 100}) for _ in range(2)]
        until(lambda: sum(one["load"] for one in fleet.ask("/emulator/replicas").json["replicas"]) == 2)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/completions", body, {"x-inferplan-server": "free"})
        until(lambda: counted(fleet, "inferplan_router_queue_waiting") == {'queue="both"': 1})
        connection.close()
        until(lambda: counted(fleet, "inferplan_router_queue_waiting") == {'queue="both"': 0})
        assert [one.result()[0] for one in held] == [200, 200]
    assert noted(fleet, "gold", TOKENS)[0] == 200  # its slot was not lost


@pytest.mark.parametrize(
    ("named", "server"),
    [
        ({"model": "gold"}, "gold"),
        ({"model": "mix", "priority": 1}, "gold"),
        ({"model": "mix"}, "free"),
        ({"model": "mix", "priority": 7}, "free"),
        ({"model": "tiny"}, "ask-tiny"),
        ({"model": "two"}, ""),
        ({"model": "chat (two)"}, "chat (two)"),
    ],
)
def test_model_and_priority_name_the_class(fleet: Emulator, named: dict[str, Any], server: str) -> None:
    status, note, _ = noted(fleet, "", TOKENS | named)
    assert (status, note["server"]) == (200, server)


def test_tokens_are_counted_without_the_steps(fleet: Emulator) -> None:
    assert fleet.ask("/tokenize", {"model": "gold", "prompt": "a b"}).json["count"] == 2
    assert {"ask", "chat", "gold", "one"} <= {one["id"] for one in fleet.ask("/v1/models").json["data"]}
    assert fleet.ask("/emulator/versions/none").status == 404


def test_service_takes_its_times_and_counts_its_price(fleet: Emulator) -> None:
    before = sum(counted(fleet, "inferplan_router_rented_cents_total").values())
    began_s = time.monotonic()
    status, note, text = noted(fleet, "rented", TOKENS | {"max_tokens": 21})
    spent_s = time.monotonic() - began_s
    assert (status, note["server"]) == (200, "rented")
    assert json.loads(text)["usage"]["completion_tokens"] == 21
    assert spent_s > 0.05 + 20 * 0.005 - 0.002
    after = sum(counted(fleet, "inferplan_router_rented_cents_total").values())
    assert after - before == pytest.approx((3 * 100 + 21 * 400) / 1e6)


@pytest.mark.slow
def test_drive_asks_for_names_and_counts_who_answers(
    fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run
) -> None:
    picture = tmp_path / "live.svg"
    answer = run("drive", fleet_document, fleet.url, "--requests", "60", "-o", picture, "--json")
    assert answer.status == 0, answer.err
    rows = {row["server"]: row for row in answer.json["answers"]}
    # 20 requests at least to each name: shares within four standard deviations of the planned ones.
    assert rows["eyes"]["planned_hits"] == 0.5
    assert 0.05 <= rows["eyes"]["hits"] <= 0.95
    for name in ("chat (one)", "chat (two)"):
        assert rows[name]["planned_share"] == pytest.approx(0.5)
        assert 0.05 <= rows[name]["share"] <= 0.95
    to_small, to_large = rows["ask-tiny"], rows["ask-big"]
    # Hard requests run on both models, so the shares add up to more than 1.
    assert to_small["planned_share"] == pytest.approx((0.9 + 0.8575) / 2, abs=0.001)
    assert to_small["planned_share"] + to_large["planned_share"] == pytest.approx(1.047, abs=0.001)
    assert abs(to_small["share"] - to_small["planned_share"]) < 0.2
    assert rows["rented"]["requests"] >= 20
    # Their network takes 150 ms.
    pools = {pool["server"]: pool for pool in answer.json["pools"]}
    assert pools["chat (one)"]["ttft"]["mean"]["value"] > 150
    text = picture.read_text()
    assert all(title in text for title in ("TTFT of chat (two) on", "latency of eyes", "ITL of ask-tiny"))


@pytest.mark.slow
def test_keys_and_rates_are_checked_at_the_router(fleet_document: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("solve sender\nread reader\n")
    with emulated(fleet_document, "--keys-file", str(keys), "--rate-limit", "3") as fleet:

        def ask(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return noted(fleet, "eyes", {}, "/predict", **headers)[0]

        assert [ask(key) for key in ("", "other", "reader")] == [401, 401, 403]
        assert [ask("sender") for _ in range(4)] == [200, 200, 200, 429]
        address = urlsplit(fleet.url)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE_S)
        connection.request("POST", "/predict", b"{}", {"X-API-KEY": "sender", "x-inferplan-server": "eyes"})
        reply = connection.getresponse()
        assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
        assert "3 requests/s" in json.loads(reply.read())["error"]["message"]
        connection.close()
        until(lambda: ask("sender") == 200)
        assert fleet.ask("/health").status == 200
        assert fleet.ask("/metrics").status == 401
