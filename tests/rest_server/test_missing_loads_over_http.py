"""Sequences of incomplete load snapshots through the service: nothing stays at zero, everything is named."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from api_clients import client
from builders import Json, accelerator, document, profile, server, service_class
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from load_sequences import DOCUMENTS, KINDS, Kind, transitions, update_of
from slow_cases import mostly_slow

SEQUENCES = list(product(KINDS, repeat=4))
PARTS = 9
"""Number of parts of all sequences; each is one fleet with a server for each sequence."""


def fleet(loads: dict[str, Json], cards: int | None = None, **more: Any) -> Json:
    servers = [server(name) | {"currentAlloc": {"load": load}} | more for name, load in loads.items()]
    units = None if cards is None else {"H": cards}
    return document(servers, [accelerator("H")], units, classes=[service_class("gold", itl=50.0)])


def planned(service: TestClient, body: Json) -> tuple[dict[str, Json], dict[str, Json]]:
    """Post a snapshot; return the target of each server on H, and the note of each server with one."""
    answer = service.post("/v1/loads", json=body)
    assert answer.status_code == 200, answer.text
    targets = service.get("/v1/targets").json()["targets"]
    notes = {item["server"]: item for item in answer.json().get("missingLoads", ())}
    return {item["server"]: item for item in targets if item["accelerator"] == "H"}, notes


def check(target: Json, note: Json | None, state: str, *, has_note: bool) -> None:
    """Check what a server gets without replicas and rules, in a state."""
    assert (target["desiredReplicas"] > 0) == (state in {"unsized", "known"}), (target, state)
    assert (note is not None) == (has_note or state == "unsized"), (target, state)
    assert target["held"] == (note is not None)
    if note is not None:
        assert (target["reason"], target["detail"]) == ("LoadMissing", note["detail"])


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_slow(range(PARTS), 1))
def test_every_sequence_of_four_snapshots_follows_the_table(part: int) -> None:
    """All 9^4 sequences, one for each server of nine fleets; each server starts in another state."""
    follow(SEQUENCES[part::PARTS])


@pytest.mark.slow
def test_some_sequences_of_four_snapshots_follow_the_table() -> None:
    follow(SEQUENCES[::97])


def follow(sequences: Sequence[tuple[Kind, ...]]) -> None:
    starts = [state for state in DOCUMENTS if state != "unsized"]  # no document can state that
    states = dict(zip(map(str, range(len(sequences))), starts * len(sequences), strict=False))
    with client(stateful=True, max_servers=len(sequences)) as service:
        assert service.put("/v1/fleet", json=fleet({n: DOCUMENTS[s] for n, s in states.items()})).is_success
        known = {name for name, state in states.items() if state == "known"}
        for step in range(4):
            body = {name: update_of(kinds[step]) for name, kinds in zip(states, sequences, strict=True)}
            targets, notes = planned(service, body)
            for name, kinds in zip(states, sequences, strict=True):
                runs = targets[name]["desiredReplicas"] > 0
                states[name], has_note = transitions()[states[name], kinds[step]]
                if states[name] in {"new", "sized"}:
                    assert not runs
                else:
                    check(targets[name], notes.get(name), states[name], has_note=has_note)
                known |= {name} if states[name] == "known" else set()
        full = {name: update_of(("above 0", "above 0")) for name in states}
        targets, notes = planned(service, full)
        assert not notes
        assert len({item["desiredReplicas"] for item in targets.values()}) == 1


@pytest.mark.slow
def test_a_load_returns_after_a_minute_of_zero_lengths() -> None:
    """The replicas of the reproducer: 40 requests/s, a minute of zeros, and 40 requests/s without lengths."""
    full = {"arrivalRate": "40/s", "avgInTokens": 400, "avgOutTokens": 120}
    for rules in (None, "recommended"):
        with client(stateful=True, stabilise=rules) as service:
            assert service.put("/v1/fleet", json=fleet({"chat": {}})).is_success
            before, _ = planned(service, {"chat": full | {"replicas": {"H": {"ready": 2}}}})
            planned(service, {"chat": {"arrivalRate": 0, "avgInTokens": 0, "avgOutTokens": 0}})
            after, notes = planned(service, {"chat": full | {"avgInTokens": 0, "avgOutTokens": 0}})
            number = before["chat"]["desiredReplicas"]
            assert number == after["chat"]["desiredReplicas"] > 0
            assert after["chat"]["held"]
            assert notes["chat"]["values"] == ["avgInTokens", "avgOutTokens"]
            again, notes = planned(service, {"chat": {"arrivalRate": 2400}})
            assert (again["chat"]["desiredReplicas"], notes) == (number, {})


def test_a_server_of_unknown_rate_keeps_its_replicas() -> None:
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=fleet({"chat": {}})).is_success
        for _ in range(2):
            targets, notes = planned(service, {"chat": {"replicas": {"H": {"ready": 3}}}})
            assert (targets["chat"]["desiredReplicas"], targets["chat"]["held"]) == (3, True)
            assert notes["chat"]["values"] == ["arrivalRate"]
        targets, notes = planned(service, {"chat": {"arrivalRate": 0}})
        assert (targets["chat"]["desiredReplicas"], notes) == (0, {})


@pytest.mark.few(1)
@pytest.mark.parametrize(("priority", "number"), [(1, 1), (3, 0)])
def test_cards_and_priority_decide_about_the_replica(priority: int, number: int) -> None:
    source = fleet({"chat": {}, "other": {}}, cards=2)
    source["serviceClasses"].append({**source["serviceClasses"][0], "name": "own", "priority": priority})
    source["serviceClasses"][0]["priority"] = 2
    source["servers"][0]["class"] = "own"
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source).is_success
        other = {"arrivalRate": 1000, "avgInTokens": 16, "avgOutTokens": 64}
        targets, notes = planned(service, {"chat": {"arrivalRate": 60}, "other": other})
        assert "chat" in notes
        assert targets["chat"]["desiredReplicas"] == number


def test_lengths_that_a_put_removes_are_those_of_the_last_plan() -> None:
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=fleet({"chat": DOCUMENTS["known"]})).is_success
        before, _ = planned(service, {"chat": {"arrivalRate": 9000}})
        bare = fleet({"chat": {}})["servers"][0]
        assert service.put("/v1/servers/chat", json=bare).is_success
        after, notes = planned(service, {"chat": {"arrivalRate": 9000}})
        assert after["chat"]["desiredReplicas"] == before["chat"]["desiredReplicas"] > 1
        assert not notes


@pytest.mark.slow
def test_queues_and_versions_of_unknown_lengths_get_replicas() -> None:
    shared = fleet({"a": DOCUMENTS["known"], "b": {}}, sharedQueue="q")
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=shared).is_success
        targets, notes = planned(service, {"a": {"arrivalRate": 0}, "b": {"arrivalRate": 60}})
        assert (targets["q"]["desiredReplicas"], set(notes)) == (1, {"b"})
    split = fleet({"chat": {}}, split=[{"model": "m", "weight": 0.5}, {"model": "n", "weight": 0.5}])
    split["models"].append(profile("n", "H"))
    split["serviceClasses"] = [service_class("gold", models=["m", "n"], itl=50.0)]
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=split).is_success
        targets, notes = planned(service, {"chat": {"arrivalRate": 60}})
        assert {name: item["desiredReplicas"] for name, item in targets.items()} == {
            "chat (m)": 1,
            "chat (n)": 1,
        }


@pytest.mark.slow
@pytest.mark.parametrize("rules", mostly_slow([None, "recommended"], 0))
def test_longer_sequences_through_the_service_follow_the_table(rules: str | None) -> None:
    """Snapshots of two servers, PUTs and reports of replicas in any order, as hypothesis finds them."""

    class Snapshots(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.opened = client(stateful=True, stabilise=rules)
            self.service = self.opened.__enter__()
            self.states = {"a": "new", "b": "known"}
            loads = {name: DOCUMENTS[state] for name, state in self.states.items()}
            assert self.service.put("/v1/fleet", json=fleet(loads)).is_success

        @rule(
            kinds=st.dictionaries(st.sampled_from("ab"), st.sampled_from(KINDS)),
            replicas=st.none() | st.integers(0, 3),
        )
        def snapshot(self, kinds: dict[str, Kind], replicas: int | None) -> None:
            more = {} if replicas is None else {"replicas": {"H": {"ready": replicas}}}
            targets, notes = planned(
                self.service, {name: update_of(kind) | more for name, kind in kinds.items()}
            )
            for name, kind in kinds.items():
                self.states[name], has_note = transitions()[self.states[name], kind]
                assert not has_note or name in notes
            for name, state in self.states.items():
                if state in {"unsized", "known"}:
                    assert targets[name]["desiredReplicas"] > 0
                assert (name in notes) <= targets[name]["held"] or not targets[name]["desiredReplicas"]

        @rule(name=st.sampled_from("ab"), state=st.sampled_from(["idle", "asleep", "known"]))
        def put(self, name: str, state: str) -> None:
            one = fleet({name: DOCUMENTS[state]})["servers"][0]
            assert self.service.put(f"/v1/servers/{name}", json=one).is_success
            is_sized = state != "idle" or self.states[name] in {"asleep", "known", "sized"}
            self.states[name] = "asleep" if is_sized and state == "idle" else state

        def teardown(self) -> None:
            self.opened.__exit__(None, None, None)

    run_state_machine_as_test(
        Snapshots,
        settings=settings(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
