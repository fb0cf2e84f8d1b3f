"""Solver workers: how many, who waits, what happens to those who leave, and processes that solve."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from patience import PATIENCE_S, until
from service_runs import Service, in_a_thread
from starlette.requests import Request
from starlette.types import Message
from wire_client import slow_system

from rest_server import workers
from rest_server.compat.bodies import read_reference_system
from rest_server.fleet import Entities
from rest_server.settings import Settings


def events(*names: str) -> dict[str, threading.Event]:
    return {name: threading.Event() for name in names}


def test_no_more_work_runs_at_once_than_there_are_workers() -> None:
    known = events("a", "b", "c")
    with in_a_thread(known, max_solves=2) as here, ThreadPoolExecutor(3) as clients:
        answers = [clients.submit(here.ask, "GET", f"/wait/{name}") for name in known]
        here.until(running=2, waiting=1)
        for event in known.values():
            event.set()
        assert [answer.result().status for answer in answers] == [200, 200, 200]
        here.until(running=0, waiting=0)


def test_a_full_queue_answers_503_and_says_when_to_try_again() -> None:
    with in_a_thread(events("a"), max_waiting=1) as here, ThreadPoolExecutor(2) as clients:
        answers = [clients.submit(here.ask, "GET", "/wait/a") for _ in range(2)]
        here.until(running=1, waiting=1)
        refused = here.ask("GET", "/v1/wait/a")
        assert refused.status == 503
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json["detail"].startswith("every solver worker is busy, requests waiting: 1")
        assert set(here.ask("GET", "/wait/a").json) == {"message"}
        here.events["a"].set()
        assert [answer.result().status for answer in answers] == [200, 200]


def test_simultaneous_requests_do_not_overfill_the_queue() -> None:
    solver_workers = workers.SolverWorkers(Settings(max_solves=1, max_waiting=2, solver_processes=0))
    done = threading.Event()

    async def staying() -> Message:
        return await asyncio.Future()

    async def together() -> list[object]:
        request = Request({"type": "http"}, staying)
        asks = [
            asyncio.create_task(solver_workers.run(request, partial(done.wait, PATIENCE_S))) for _ in range(9)
        ]
        await asyncio.wait(asks, return_when=asyncio.FIRST_EXCEPTION)
        done.set()
        return await asyncio.gather(*asks, return_exceptions=True)

    answers = asyncio.run(together())
    assert answers[:3] == [True, True, True]
    assert [type(answer) for answer in answers[3:]] == [workers.QueueFullError] * 6
    assert (solver_workers.running, solver_workers.waiting) == (0, 0)


def test_closed_workers_refuse_work() -> None:
    """A page that is still open asks for work while the service stops."""
    solver_workers = workers.SolverWorkers(Settings(solver_processes=0))

    async def staying() -> Message:
        return await asyncio.Future()

    async def late() -> None:
        await solver_workers.close()
        await solver_workers.run(Request({"type": "http"}, staying), partial(int, 1))

    with pytest.raises(workers.ServiceStoppingError, match="the service is stopping"):
        asyncio.run(late())
    assert (solver_workers.running, solver_workers.waiting) == (0, 0)


def test_health_and_readiness_do_not_wait_for_a_place() -> None:
    with in_a_thread(events("a"), max_waiting=0) as here, ThreadPoolExecutor(1) as clients:
        answer = clients.submit(here.ask, "GET", "/wait/a")
        here.until(running=1, waiting=0)
        assert here.ask("GET", "/healthz").json == {"status": "ok"}
        assert here.ask("GET", "/readyz").json == {"status": "ready", "running": 1, "waiting": 0}
        here.events["a"].set()
        assert answer.result().status == 200


@pytest.mark.slow
def test_the_time_limit_holds_in_the_queue_and_at_work() -> None:
    with in_a_thread(events("a"), request_timeout_s=0.5) as here, ThreadPoolExecutor(2) as clients:
        answers = [clients.submit(here.ask, "GET", "/v1/wait/a") for _ in range(2)]
        assert [answer.result().status for answer in answers] == [504, 504]
        assert "0.5 s" in answers[0].result().json["detail"]
        here.until(running=1, waiting=0)  # a thread cannot be interrupted: its worker stays busy
        here.events["a"].set()
        here.until(running=0, waiting=0)


def test_a_client_that_leaves_while_queued_frees_its_slot() -> None:
    with in_a_thread(events("a"), max_waiting=1) as here:
        first = here.connect("/wait/a")
        here.until(running=1, waiting=0)
        second = here.connect("/wait/a")
        here.until(running=1, waiting=1)
        second.close()
        here.until(running=1, waiting=0)
        first.close()
        here.events["a"].set()
        here.until(running=0, waiting=0)
        assert here.ask("GET", "/wait/a").status == 200


def test_shutting_down_finishes_what_runs_and_what_waits() -> None:
    with ThreadPoolExecutor(2) as clients:
        with in_a_thread(events("a")) as here:
            answers = [clients.submit(here.ask, "GET", "/wait/a") for _ in range(2)]
            here.until(running=1, waiting=1)
        assert [answer.result().status for answer in answers] == [200, 200]


# --- processes -----------------------------------------------------------------------------------------


def test_work_that_nobody_waits_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "GRACE_S", 0.05)
    with in_a_thread(solver_processes=1, request_timeout_s=0.5) as here:
        until_ready(here)
        until(
            lambda: here.ask("POST", "/optimizeOne", slow_system(300)).status == 504
        )  # 408 where it came too late
        here.until(running=0, waiting=0)


@pytest.mark.slow
def test_loads_whose_plan_times_out_are_stored_and_free_the_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "GRACE_S", 0.05)
    with in_a_thread(solver_processes=1, request_timeout_s=1.0, stateful=True) as here:
        until_ready(here)
        fleet = Entities.of(read_reference_system(slow_system(300), []))
        here.app.state.held.update(lambda _: fleet)

        def stored_without_a_plan() -> bool:
            status = here.ask("POST", "/v1/loads", {"s7": {"arrivalRate": 4242}}).status
            assert status in {408, 504}
            here.until(running=0, waiting=0)
            stored = here.ask("GET", "/v1/servers/s7").json
            return bool(stored["currentAlloc"]["load"]["arrivalRate"] == 4242)

        until(stored_without_a_plan)  # not at once where its time is over before its planning begins
        assert here.ask("GET", "/v1/plan").status == 404


def until_ready(here: Service) -> None:
    until(lambda: here.ask("GET", "/readyz").status == 200)
