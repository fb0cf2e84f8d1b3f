"""Routes of llm-inferno's queue-analysis service: analyse or size a queue, or find its best batch limit.

Bodies and responses are those of llm-inferno, with rates in requests/s and times in ms. Unlike there, unset
targets are ignored, and the best batch limit is found by trying all of them.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from optimizer.compat.queue_service import QueueProblem
from optimizer.documents import Document
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.replicas import ReplicaSizing, size_replicas
from optimizer.timing.iteration import IterationLaw
from optimizer.timing.law import RequestShapes
from rest_server.compat.answers import WireRoute, json_response
from rest_server.compat.changes import spelled
from rest_server.compat.lenient import json_body, read_entity
from rest_server.settings import Settings

DEFAULT_CONCURRENCY = 256
"""Maximum batch limit that is tried if none is given."""
MAX_CONCURRENCY = 2048
"""Largest batch limit that can be tried, because the time grows with its square."""
NEAR_PEAK = 0.99
"""Fraction of the throughput at the largest batch limit that the best one must reach (reference-system §1.5).
"""
ROWS_AT_ONCE = 512
"""Number of batch limits that are sized at a time."""


class ConcurrencyAnswer(Document):
    """The smallest batch limit that is about as good as the largest, and the performance with it."""

    concurrency: int
    """Best batch limit [requests]."""
    throughput_rps: float = Field(0.0, alias="throughput")
    """Throughput of completed requests at the largest rate that meets the targets [requests/s]."""
    response_ms: float = Field(0.0, alias="avgRespTime")
    """Mean sum of queueing and service time [ms]."""
    wait_ms: float = Field(0.0, alias="avgWaitTime")
    """Mean queueing time [ms]."""
    in_service: float = Field(0.0, alias="avgNumInServ")
    """Mean number of requests in the batch."""
    ttft_ms: float = Field(0.0, alias="avgTTFT")
    """Mean time to first token [ms]."""
    itl_ms: float = Field(0.0, alias="avgITL")
    """Mean inter-token latency [ms]."""
    stable_rate_rps: float = Field(0.0, alias="maxRPS")
    """Maximum stable rate [requests/s]."""
    largest_batch_itl: int = Field(alias="M_ITL")
    """Largest batch that meets the ITL target when full; the largest batch tried if there is no target."""
    largest_batch_ttft: int = Field(alias="M_TPF")
    """Largest batch whose prefill alone meets the TTFT target; the largest batch tried if there is no target.
    """
    sized: int = Field(alias="oracleCalls")
    """Number of batch limits that were sized."""
    feasible: bool
    """Whether the targets can be met at any rate."""


def queue_router() -> APIRouter:
    """Return the routes of llm-inferno's queue-analysis service."""
    router = APIRouter(route_class=WireRoute, include_in_schema=False)
    for path, work in (("/solve", _solve), ("/target", _target), ("/optimize", _optimize)):
        router.add_api_route(path, _handler(work), methods=["POST"])
    return router


def best_concurrency(problem: QueueProblem) -> ConcurrencyAnswer:
    """Return the smallest batch limit with almost the throughput of the problem's own batch limit.

    Raises:
        AnalysisError: a service time is zero.
    """
    most = problem.max_batch
    largest = _sizings(problem, [most])[0]
    limits = _brackets(problem)
    if isinstance(largest, AnalysisError):
        return _answer(1, None, limits, sized=1)
    enough = NEAR_PEAK * largest.at_max_rate.throughput_rps
    for first in range(1, most, ROWS_AT_ONCE):
        batches = list(range(first, min(first + ROWS_AT_ONCE, most)))
        for batch, sizing in zip(batches, _sizings(problem, batches), strict=True):
            if isinstance(sizing, ReplicaSizing) and sizing.at_max_rate.throughput_rps >= enough:
                return _answer(batch, sizing, limits, sized=batches[-1] + 1)
    return _answer(most, largest, limits, sized=most)


def _sizings(problem: QueueProblem, batches: list[int]) -> list[ReplicaSizing | AnalysisError]:
    replica = problem.replica()
    replicas = [replica.model_copy(update={"max_batch": batch}) for batch in batches]
    return size_replicas(replicas, [problem.targets()] * len(batches))


def _brackets(problem: QueueProblem) -> tuple[int, int]:
    """Return the largest batches that meet the ITL target when full, and the TTFT target by prefill alone."""
    replica, ones = problem.replica(), np.ones(problem.max_batch)
    shapes = RequestShapes(replica.in_tokens * ones, replica.out_tokens * ones)
    law = IterationLaw.of_rows(np.outer(IterationLaw.parameters(replica), ones), shapes)
    batches = np.arange(1.0, problem.max_batch + 1)
    times = law.token_times(law.service_time_ms(batches), batches, batches.astype(np.int64))
    brackets = []
    for values, target in ((times.itl_ms, problem.target_itl_ms), (times.prefill_ms, problem.target_ttft_ms)):
        meeting = np.flatnonzero(values <= (target or np.inf))
        brackets.append(int(meeting[-1]) + 1 if len(meeting) else 1)
    return brackets[0], brackets[1]


def _answer(
    batch: int, sizing: ReplicaSizing | None, limits: tuple[int, int], *, sized: int
) -> ConcurrencyAnswer:
    answer = {
        "concurrency": batch,
        "largest_batch_itl": limits[0],
        "largest_batch_ttft": limits[1],
        "sized": sized,
        "feasible": sizing is not None,
    }
    if sizing is None:
        return ConcurrencyAnswer.model_validate(answer)
    return ConcurrencyAnswer.taken_from(sizing.at_max_rate, **answer)


# --- handlers ------------------------------------------------------------------------------------------


def _problem(body: bytes, settings: Settings, max_batch: int | None = None) -> QueueProblem:
    """Read a queue problem; missing values are 0, and a missing batch limit becomes `max_batch`."""
    given = spelled(json_body(body))
    if max_batch is not None and not given.get("maxbatchsize"):
        given["maxbatchsize"] = max_batch
    problem: QueueProblem = read_entity(QueueProblem, {"avginputtokens": 0.0, **given}, "", [])
    _check_batch(problem, settings.max_batch)
    return problem


def _check_batch(problem: QueueProblem, most: int) -> None:
    if problem.max_batch > most:
        raise SpecError(f"maxBatchSize: must be at most {most:,} on this service, not {problem.max_batch:,}")


def _solve(body: bytes, settings: Settings) -> Document:
    return _problem(body, settings).analyze()


def _target(body: bytes, settings: Settings) -> Document:
    return _problem(body, settings).size()


def _optimize(body: bytes, settings: Settings) -> Document:
    problem = _problem(body, settings, min(DEFAULT_CONCURRENCY, settings.max_batch))
    _check_batch(problem, MAX_CONCURRENCY)
    return best_concurrency(problem)


def _handler(work: Callable[[bytes, Settings], Document]) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def handler(request: Request) -> Response:
        state = request.app.state
        asked = partial(work, await request.body(), state.settings)
        document: Document = await state.workers.run(request, asked)
        return json_response(document.model_dump(by_alias=True))

    return handler
