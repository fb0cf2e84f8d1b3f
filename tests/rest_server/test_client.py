"""The clients against the service itself, over real connections; both have the same methods."""

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import httpx2 as httpx
import pytest
from builders import accelerator, document, server
from service_runs import Service, in_a_thread

import rest_server.client
from optimizer import (
    Explanation,
    InferplanError,
    MissingExtraError,
    SpecError,
    load_system,
    size_replicas,
    solve,
)
from optimizer.jobs.horizons import HorizonOptions
from optimizer.jobs.memory import MemoryQuestion, memory_of
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from optimizer.jobs.sweeping import SweepOptions
from optimizer.schema import Capacity, OptimizerOptions, Server
from optimizer.studies.horizon.horizon_document import Horizon
from optimizer.studies.sweep.sweep_document import Sweep
from rest_server.client import (
    FLEET,
    AsyncClient,
    AuthError,
    Client,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ResponseTimeoutError,
    ServiceError,
    UnavailableError,
    UnreachableError,
)
from rest_server.v1.models import (
    Analysis,
    CompareOptions,
    EffortOptions,
    FigureOptions,
    LoadChange,
    LoadUpdate,
    OtherSide,
    PlanOptions,
    ReplicaCount,
    ReportOptions,
    SizingOptions,
    SizingProblem,
    TwoSides,
    Unattainable,
)

REPLICA = {"decodeParms": {"alpha": 19.0, "beta": 1.0}, "outTokens": 100.0, "inTokens": 0.0, "maxBatch": 32}
SOURCE = document([server("s")], [accelerator("A"), accelerator("B", cost=5)], {"A": 9, "B": 9})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("sesame\nread looking\n", encoding="utf-8")
    with in_a_thread(stateful=True, api_key_files=(keys,)) as here:
        yield here


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}/", api_key="sesame") as found:
        yield found


@pytest.mark.slow
def test_a_plan_matches_the_library_for_every_kind_of_source(client: Client, tmp_path: Path) -> None:
    system = load_system(SOURCE)
    path = tmp_path / "system.json"
    path.write_text(json.dumps(SOURCE))
    for given in (SOURCE, system, system.to_spec(), path, str(path)):
        assert client.plan(given) == solve(system)
    options = PlanOptions(unlimited=True, solver="greedy")
    assert client.plan(SOURCE, options) == solve(system.with_options(unlimited=True, milp_solver=False))


@pytest.mark.slow
def test_every_question_has_its_typed_answer(client: Client) -> None:
    assert {item.accelerator for item in client.candidates(SOURCE).candidates} == {"A", "B"}
    chosen = client.candidates(SOURCE, SizingOptions(batch_sizing="optimal")).candidates
    assert {item.batch_ceiling for item in chosen} == {8}
    assert client.compare(SOURCE).to_json()
    assert assert_type(client.explain(SOURCE), Explanation).to_json()
    points = assert_type(client.sweep(SOURCE, SweepOptions(vary=("load=1,2", "count:A=1,9"))), Sweep).points
    assert [point.values for point in points] == [(1, 1), (1, 9), (2, 1), (2, 9)]
    assert assert_type(client.horizon(SOURCE, HorizonOptions(factors=(1, 2, 1))), Horizon).intervals == 3
    assert client.report(SOURCE).to_json()
    assert client.report_page(SOURCE, ReportOptions(format="csv")).startswith("server,")
    assert client.figure(SOURCE, FigureOptions(kind="load")).panels
    analysis = Analysis.model_validate({"replica": REPLICA, "rate": 0.5})
    assert client.analyze(analysis).offered_rps == 0.5
    problem = SizingProblem.model_validate({"replica": REPLICA, "targets": {"itl": 40.0}})
    assert client.size(problem) == size_replicas([problem.replica], [problem.targets])[0]
    assert client.picture(SOURCE, FigureOptions(kind="load", format="png")).startswith(b"\x89PNG")


def test_memory_is_that_of_the_library(client: Client) -> None:
    question = MemoryQuestion(model="llama-3.1-8b", accelerators=("H100", "2xL40S"), cache="fp8")
    assert client.memory(question) == memory_of(question)


def test_several_replicas_are_asked_about_at_once(client: Client) -> None:
    analyses = [Analysis.model_validate({"replica": REPLICA, "rate": rate}) for rate in (0.1, 0.2)]
    assert [found.offered_rps for found in client.analyze_all(analyses)] == [0.1, 0.2]
    targets = [{"itl": itl} for itl in (40.0, 1.0)]
    problems = [SizingProblem.model_validate({"replica": REPLICA, "targets": each}) for each in targets]
    sized, impossible = client.size_all(problems)
    assert sized == client.size(problems[0])
    assert isinstance(impossible, Unattainable)
    assert "itl" in impossible.message.lower()


def test_what_is_simulated_and_repaired_is_that_of_the_library(client: Client) -> None:
    effort = EffortOptions(requests=1000, seed=4)
    request = load_system(SOURCE), SimulateOptions(requests=1000, seed=4)
    assert client.simulate(SOURCE, effort).pools == simulate_plan(*request).pools
    assert client.repair(SOURCE, effort).plan.allocations.keys() == {"s"}
    report = client.report(SOURCE, ReportOptions(simulate=True, requests=1000, format="csv"))
    assert report.simulation is not None


@pytest.mark.slow
def test_a_fleet_is_kept_planned_and_changed(client: Client) -> None:
    spec = load_system(SOURCE).to_spec()
    for section in (spec.accelerators, spec.models, spec.service_classes, spec.servers, spec.count):
        for entity in section:
            client.put(entity)
    assert client.servers() == spec.servers
    assert client.accelerators() == spec.accelerators
    assert client.models() == spec.models
    assert client.service_classes() == spec.service_classes
    assert client.capacity() == spec.count
    plan = client.put_loads({"s": LoadUpdate(arrival_rate_rpm=90.0)})
    assert client.last_plan().allocations == plan.allocations
    assert client.apply_plan().servers[0].current.accelerator == plan.allocations["s"][0].accelerator
    with pytest.raises(ConflictError):
        client.put_loads({}, if_match='"run-1"')
    client.put(Server(name="a/b c", model="m", service_class="gold"))
    client.delete(Server(name="a/b c", model="m"))
    with pytest.raises(NotFoundError):
        client.delete(Capacity(type="none", count=1))


@pytest.mark.slow
def test_a_moved_fleet_is_queried_like_its_document(client: Client) -> None:
    before = client.etag()
    assert client.import_fleet(SOURCE, if_match=before).servers == load_system(SOURCE).to_spec().servers
    with pytest.raises(ConflictError):
        client.import_fleet(SOURCE, if_match=before)
    exported = client.export_fleet()
    assert load_system(exported.model_dump(by_alias=True, exclude_unset=True)) == load_system(SOURCE)
    assert client.explain(FLEET) == client.explain(SOURCE)
    assert client.compare(FLEET, CompareOptions(scale=2)) == client.compare(SOURCE, CompareOptions(scale=2))
    dear = SOURCE | {"accelerators": [accelerator("A", cost=80), accelerator("B", cost=50)]}
    assert client.compare(OtherSide(second=dear)) == client.compare(TwoSides(first=SOURCE, second=dear))
    effort = EffortOptions(requests=1000)
    assert client.simulate(FLEET, effort).pools == client.simulate(SOURCE, effort).pools
    assert client.repair(FLEET, effort).plan == client.repair(SOURCE, effort).plan
    assert client.report(FLEET) == client.report(SOURCE)
    assert client.report_page(FLEET, ReportOptions(format="csv")).startswith("server,")
    shown = FigureOptions(kind="load")
    assert client.figure(FLEET, shown) == client.figure(SOURCE, shown)
    assert client.picture(FLEET, FigureOptions(kind="load", format="svg")).lstrip().startswith(b"<?xml")


def test_an_autoscaler_reads_what_the_last_plan_desires(client: Client) -> None:
    client.import_fleet(SOURCE)
    there = {"A": ReplicaCount(ready=1, pending=2)}
    plan = client.put_loads({"s": LoadUpdate(arrival_rate_rpm=90.0, replicas=there)})
    (pool,) = plan.allocations["s"]
    targets = {item.accelerator: item for item in client.targets()}
    assert targets.keys() == {"A", "B"}
    assert targets[pool.accelerator].desired_replicas == pool.num_replicas
    assert targets["A"].current_replicas == 3
    one, same = (
        target.model_copy(update={"age_s": 0.0, "load_age_s": 0.0})
        for target in (client.target("s", pool.accelerator), targets[pool.accelerator])
    )
    assert one == same
    with pytest.raises(NotFoundError, match="'s/t' does not exist"):
        client.target("s/t", "A")
    history = client.history(limit=2)
    assert [event.cause for event in history.events] == ["plan", "loads"]
    assert client.past_plan(history.plans[0]) == plan.plan
    assert "inferplan_desired_replicas{" in client.metrics()


def test_options_of_the_fleet_are_read_replaced_and_reset(client: Client) -> None:
    changed = OptimizerOptions(unlimited=True)
    assert client.put_options(changed, if_match=client.etag()) == changed
    assert client.options().unlimited
    client.delete_options()
    assert client.options() == OptimizerOptions()


def test_refusals_are_typed_errors_with_structured_problems(client: Client) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.plan({"servers": [{"name": "s", "modle": "m"}]})
    error = caught.value
    assert isinstance(error, SpecError)
    assert (error.status, error.path, error.title) == (422, "servers[0].modle", "The document is wrong")
    assert str(error).startswith("servers[0].modle: unknown key; did you mean 'model'?")
    assert error.request_id
    assert error.exit_code == 2


@pytest.mark.parametrize("key", [None, "wrong", "looking"])
def test_a_key_that_is_refused_says_why(service: Service, key: str | None) -> None:
    with Client(f"http://127.0.0.1:{service.port}", api_key=key) as client, pytest.raises(AuthError):
        client.plan(SOURCE)


UNSENDABLE: list[tuple[dict[str, Any], str]] = [
    ({"api_key": "…"}, "api_key: character 1 is '…'; only printable ASCII characters without spaces"),
    ({"api_key": "schlüssel"}, "api_key: character 5 is 'ü'"),
    ({"api_key": "sesame\n"}, r"api_key: character 7 is '\n'"),
    ({"api_key": "open sesame"}, "api_key: character 5 is ' '"),
    ({"url": "127.0.0.1:8080"}, "url: '127.0.0.1:8080' must look like 'http://127.0.0.1:8080'"),
    ({"url": "http://[::1"}, "url: 'http://[::1' is not a URL"),
    ({"url": "ftp://127.0.0.1"}, "url: 'ftp://127.0.0.1' must look like"),
    ({"timeout_s": -1.0}, "timeout_s: must be more than 0, not -1"),
]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(("given", "message"), UNSENDABLE)
def test_unsendable_keys_give_one_line_that_hides_the_key(
    kind: type[Client] | type[AsyncClient], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        kind(**({"url": "http://127.0.0.1:9"} | given))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not any(key in str(caught.value) for key in ("schlüssel", "sesame"))


def test_a_condition_that_cannot_be_sent_is_one_line(client: Client) -> None:
    with pytest.raises(SpecError, match=r"^if_match: character 4 is '…'; only printable ASCII"):
        client.apply_plan(if_match="run…")


def test_nobody_there_is_one_line() -> None:
    with (
        Client("http://127.0.0.1:9", retries=0) as client,
        pytest.raises(UnreachableError, match=r"^http://127\.0\.0\.1:9: "),
    ):
        client.last_plan()


# --- attempts ------------------------------------------------------------------------------------------


UNREADABLE = "GET /v1/accelerators: this client cannot read the answer"


class Answers(httpx.MockTransport):
    """Answers with one thing after another, and counts."""

    def __init__(self, *things: httpx.Response | Exception) -> None:
        self.left = list(things)
        super().__init__(self.answer)

    def answer(self, _: httpx.Request) -> httpx.Response:
        thing = self.left.pop(0)
        if isinstance(thing, Exception):
            raise thing
        return thing


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Keep the waits, and do not wait."""
    found: list[float] = []
    monkeypatch.setattr("rest_server.client.clients.sleep", found.append)

    async def noted(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("rest_server.client.clients.pause", noted)
    return found


def busy(wait: str) -> httpx.Response:
    return httpx.Response(503, json={"detail": "busy"}, headers={"Retry-After": wait})


def made(transport: httpx.BaseTransport, **more: Any) -> Client:
    return Client("http://service", transport=transport, **more)


def test_a_busy_service_is_asked_again_after_retry_after(waits: list[float]) -> None:
    assert made(Answers(busy("7"), busy("999"), httpx.Response(200, json={"servers": []}))).servers() == ()
    assert waits == [7.0, 30.0]
    with pytest.raises(UnavailableError, match="busy"):
        made(Answers(busy("1"), busy("1")), retries=1).servers()


def test_a_stale_plan_is_raised_at_once_without_a_retry(waits: list[float]) -> None:
    transport = Answers(busy("15"), busy("15"))
    with pytest.raises(UnavailableError):
        made(transport).target("s", "A")
    with pytest.raises(UnavailableError):
        made(transport).targets()
    assert not waits


def test_a_broken_connection_is_retried_if_that_is_safe(waits: list[float]) -> None:
    broken = httpx.ReadError("reset")
    assert made(Answers(broken, httpx.Response(200, json={"count": []}))).capacity() == ()
    assert 0.25 <= waits[0] <= 0.75
    transport = Answers(broken, httpx.Response(200, json={"servers": []}))
    with pytest.raises(UnreachableError, match="http://service: reset"):
        made(transport).apply_plan()
    assert len(transport.left) == 1


def test_a_response_timeout_is_not_retried(waits: list[float]) -> None:
    with pytest.raises(ResponseTimeoutError, match=r"no answer within 0\.5 s"):
        made(Answers(httpx.ReadTimeout("slow")), timeout_s=0.5).servers()
    assert not waits


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[1]", b'{"message": "no"}'])
def test_an_error_of_a_proxy_is_an_error_of_the_service_too(body: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        made(Answers(httpx.Response(502, content=body))).servers()
    assert str(caught.value) == ("no" if b"message" in body else "HTTP status 502")
    assert isinstance(caught.value, InferplanError)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (httpx.Response(200, html="<h1>Sign in</h1>"), ServiceError, UNREADABLE),
        (httpx.Response(200, json={"accelerators": [{"nom": "A"}]}), ServiceError, UNREADABLE),
        (httpx.Response(200, content=b"\xff"), ServiceError, UNREADABLE),
        (httpx.Response(204), ServiceError, UNREADABLE),
        (httpx.Response(302, headers={"Location": "https://login.example"}), ServiceError, "HTTP status 302"),
        (httpx.DecodingError("invalid gzip"), UnreachableError, "http://service: "),
    ],
)
@pytest.mark.usefixtures("waits")
def test_a_foreign_response_is_an_error_that_says_so(
    answer: httpx.Response | Exception, error: type[ServiceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        made(Answers(answer), retries=0).accelerators()


def test_a_header_that_a_proxy_has_dropped_is_missed_in_one_line() -> None:
    with pytest.raises(ServiceError, match="GET /v1/optimizer: this client cannot read"):
        made(Answers(httpx.Response(200, json={}))).etag()


# --- asyncio -------------------------------------------------------------------------------------------


def test_the_client_for_asyncio_answers_many_questions_at_once(service: Service) -> None:
    async def ask() -> list[object]:
        async with AsyncClient(f"http://127.0.0.1:{service.port}", api_key="sesame") as client:
            return list(await asyncio.gather(*(client.plan(SOURCE) for _ in range(3))))

    assert asyncio.run(ask()) == [solve(load_system(SOURCE))] * 3


def test_the_client_for_asyncio_asks_again_too(waits: list[float]) -> None:
    async def ask() -> object:
        async with AsyncClient("http://service", transport=Answers(busy("2"), httpx.Response(404))) as client:
            return await client.servers()

    with pytest.raises(NotFoundError):
        asyncio.run(ask())
    assert waits == [2.0]


def test_earlier_names_remain() -> None:
    assert rest_server.client.BusyError is UnavailableError
    assert rest_server.client.RefusedRequestError is InvalidRequestError
    assert LoadChange is LoadUpdate


def test_both_clients_have_the_same_signatures() -> None:
    methods = {name for name in dir(Client) if not name.startswith("_")}
    methods -= {"blocks", "close", "method_of", "send"}
    clients = Client("http://x"), AsyncClient("http://x")
    for name in methods:
        one, other = (inspect.signature(getattr(client, name)) for client in clients)
        assert one == other
    assert len(methods) > 30


def test_without_httpx_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[client\]'"):
        Client("http://service")
