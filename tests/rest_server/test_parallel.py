"""Many clients at once, over real connections: everybody gets the answer to what was asked, nothing is lost.

The reference keeps one global system: parallel calls of ``/optimizeOne`` answer one another's questions.
"""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from builders import Json, accelerator, document, random_document, server
from service_runs import Reply, Service, in_a_thread

from optimizer import load_system, solve
from rest_server.state import FleetStore

CLIENTS = 24


@pytest.fixture(scope="module", params=["threads", "processes"])
def stateless(request: pytest.FixtureRequest) -> Iterator[Service]:
    processes = 0 if request.param == "threads" else 2
    with in_a_thread(
        solver_processes=processes, max_solves=2, unserved="omit"
    ) as found:  # what the library plans, no more
        yield found


@pytest.fixture
def stateful() -> Iterator[Service]:
    with in_a_thread(stateful=True, max_solves=2) as found:
        found.app.state.held = FleetStore(instance="run")
        yield found


def at_once(work: Callable[[int], Any], clients: int = CLIENTS) -> list[Any]:
    """Return what each of many clients gets that all begin together."""
    barrier = threading.Barrier(clients)

    def begun(i: int) -> Any:
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(begun, range(clients)))


# --- each its own answer -------------------------------------------------------------------------------


def different(clients: int = CLIENTS) -> list[Json]:
    """Return systems whose servers have names of their own, so that no answer fits another question."""
    sources = [random_document(random.Random(seed)) for seed in range(clients)]
    for i, source in enumerate(sources):
        for item in source["servers"]:
            item["name"] = f"client{i}-{item['name']}"
    return sources


@pytest.mark.slow
def test_questions_of_every_kind_do_not_disturb_one_another(stateless: Service) -> None:
    sources = different(CLIENTS // 4)
    asked = ["/v1/plan", "/v1/candidates", "/optimizeOne", "/v1/plan?unlimited=true"]
    alone = [[stateless.ask("POST", path, source).text for path in asked] for source in sources]
    answers = at_once(lambda i: stateless.ask("POST", asked[i % 4], sources[i // 4]))
    assert [answer.text for answer in answers] == [body for bodies in alone for body in bodies]


@pytest.mark.slow
def test_a_wrong_system_among_many_spoils_no_other(stateless: Service) -> None:
    sources = different()
    for source in sources[::2]:
        source["servers"][0]["model"] = "nowhere"
    answers = at_once(lambda i: stateless.ask("POST", "/v1/plan", sources[i]))
    assert [answer.status for answer in answers] == [422, 200] * (CLIENTS // 2)
    for i in range(1, CLIENTS, 2):
        assert answers[i].text == solve(load_system(sources[i])).to_json()


# --- one fleet, many writers and readers ---------------------------------------------------------------


def written(service: Service, path: str, body: Json, **headers: str) -> Reply:
    answer = service.ask("PUT", f"/v1/{path}", body, **headers)
    assert answer.status in {200, 201, 412}, answer.text
    return answer


def fleet(service: Service, servers: int = 8) -> list[str]:
    """Write a fleet, and return the names of its servers."""
    names = [f"s{i}" for i in range(servers)]
    source = document([server(name) for name in names], [accelerator("A"), accelerator("B", cost=20)])
    assert service.ask("PUT", "/v1/fleet", source).status == 200
    return names


def test_parallel_writes_of_different_entities_all_arrive(stateful: Service) -> None:
    def write(i: int) -> set[str]:
        answers = [
            written(stateful, f"servers/s{i}", {"model": "m", "minNumReplicas": i}),
            written(stateful, f"capacity/T{i}", {"count": i}),
            written(stateful, f"models/m{i % 4}/A{i}", {"maxBatchSize": i}),
        ]
        return {answer.headers["etag"] for answer in answers}

    tags = at_once(write, 32)
    assert len(set().union(*tags)) == 96  # every write has a revision of its own
    servers = stateful.ask("GET", "/v1/servers")
    assert servers.headers["etag"] == '"run-96"'
    found = {item["name"]: item["minNumReplicas"] for item in servers.json["servers"]}
    assert found == {f"s{i}": i for i in range(32)}
    units = {item["type"]: item["count"] for item in stateful.ask("GET", "/v1/capacity").json["count"]}
    assert units == {f"T{i}": i for i in range(32)}
    assert len(stateful.ask("GET", "/v1/models").json["models"]) == 32


def snapshot(names: list[str], rate: float) -> Json:
    """Return the same load for every server."""
    return {name: {"arrivalRate": rate} for name in names}


def planned_rates(plan: Json) -> set[float]:
    """Return the rates that a plan's pools carry; requests a minute come back from requests a second."""
    return {round(pool["arrivalRateRpm"], 6) for pools in plan["allocations"].values() for pool in pools}


@pytest.mark.slow
def test_no_reader_sees_half_a_snapshot(stateful: Service) -> None:
    names = fleet(stateful)
    done = threading.Event()
    all_written = threading.Barrier(6, done.set)

    def write(i: int) -> list[float]:
        rates = [100.0 * i + k + 1 for k in range(5)]
        try:
            for rate in rates:
                answer = stateful.ask("POST", "/v1/loads", snapshot(names, rate))
                assert answer.status == 200
                assert planned_rates(answer.json) == {rate}
        finally:
            all_written.wait()
        return rates

    def read() -> dict[str, str]:
        seen: dict[str, str] = {}
        while not done.is_set():
            answer = stateful.ask("GET", "/v1/servers")
            rates = {item["currentAlloc"]["load"]["arrivalRate"] for item in answer.json["servers"]}
            assert len(rates) == 1
            assert seen.setdefault(answer.headers["etag"], answer.text) == answer.text
            plan = stateful.ask("GET", "/v1/plan")
            if plan.status == 200:
                found = plan.json
                assert len(planned_rates(found)) == 1
                assert plan.headers["etag"] == f'"run-{found["revision"]}"'
        return seen

    answers = at_once(lambda i: read() if i >= 6 else write(i), 12)
    written_rates = {rate for rates in answers[:6] for rate in rates}
    last = stateful.ask("GET", "/v1/servers").json["servers"][0]["currentAlloc"]["load"]["arrivalRate"]
    assert last in written_rates
    merged: dict[str, str] = {}
    for seen in answers[6:]:  # the same revision is the same for every reader
        for tag, body in seen.items():
            assert merged.setdefault(tag, body) == body


@pytest.mark.slow
def test_the_last_plan_is_that_of_the_last_snapshot(stateful: Service) -> None:
    names = fleet(stateful, 3)

    def load(i: int) -> Reply:
        return stateful.ask("POST", "/v1/loads", snapshot(names, i + 1))

    answers = at_once(load, 24)
    assert {answer.status for answer in answers} == {200}
    servers = stateful.ask("GET", "/v1/servers")
    plan = stateful.ask("GET", "/v1/plan")
    rate = servers.json["servers"][0]["currentAlloc"]["load"]["arrivalRate"]
    assert planned_rates(plan.json) == {rate}
    assert plan.headers["etag"] == servers.headers["etag"]
    for item in servers.json["servers"]:
        desired, pool = item["desiredAlloc"], plan.json["allocations"][item["name"]][0]
        assert (desired["accelerator"], desired["numReplicas"]) == (pool["accelerator"], pool["numReplicas"])
