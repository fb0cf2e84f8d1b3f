"""Routes of /v1 that only compute: plan, candidates, analyze, size and memory. None uses the fleet."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Body, Request, Response

from optimizer.compat.row_types import ROWS
from optimizer.jobs.memory import MemoryQuestion
from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.profiles.memory_document import MemoryAnswer
from optimizer.schema import SystemSpec
from rest_server.v1.examples import ANALYSES, SIZINGS, SYSTEMS
from rest_server.v1.models import (
    Analyses,
    Analysis,
    CandidateAnswer,
    Performances,
    PlanOptions,
    SizingOptions,
    SizingProblem,
    SizingProblems,
    Sizings,
    WrappedSystem,
)
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, RawRoute, computed, from_query
from rest_server.v1.work import analyze_body, candidates_body, memory_text, plan_body, size_body

REFUSALS = (408, 504)
"""Additional error statuses of routes that compute."""

router = APIRouter(route_class=RawRoute, tags=["planning"])


def answers_of(question: str) -> Any:
    """Return the union of the result types of all types of rows for a method, for OpenAPI."""
    return reduce(or_, (get_type_hints(getattr(row, question))["return"] for row in ROWS))


SystemBody = Annotated[
    bytes,
    JsonOf(SystemSpec | WrappedSystem),
    Body(description="A system, bare or in the reference's wrappers.", openapi_examples=SYSTEMS),
]


@router.post("/plan", response_model=Plan, summary="Plan a system", responses=problems(*REFUSALS))
async def plan_system(
    request: Request, body: SystemBody, options: Annotated[PlanOptions, from_query(PlanOptions)]
) -> Response:
    """Return the best plan of the system in the body, identical to that of the library and the command line.

    Unserved servers are not an error; `unserved` lists them with the reasons. Nothing is stored.
    """
    text, stages_s = await computed(request, plan_body, body, options)
    return Response(text, media_type=JSON, headers=server_timing(stages_s))


def server_timing(stages_s: Mapping[str, float]) -> dict[str, str]:
    """Return the response header with the time of each stage."""
    stages = (f"{name};dur={1000 * spent_s:.1f}" for name, spent_s in stages_s.items())
    return {"Server-Timing": ", ".join(stages)}


@router.post(
    "/candidates",
    response_model=CandidateAnswer,
    summary="Size every server on every accelerator",
    responses=problems(*REFUSALS),
)
async def list_candidates(
    request: Request, body: SystemBody, options: Annotated[SizingOptions, from_query(SizingOptions)]
) -> Response:
    """Return the candidate of every server on every accelerator, or the reason for its rejection."""
    text = await computed(request, candidates_body, body, options)
    return Response(text, media_type=JSON)


@router.post(
    "/analyze",
    response_model=ReplicaPerformance | Performances | answers_of("analyze"),
    summary="Analyse replicas",
    responses=problems(*REFUSALS),
)
async def analyze(
    request: Request,
    body: Annotated[bytes, JsonOf(reduce(or_, ROWS, Analysis | Analyses)), Body(openapi_examples=ANALYSES)],
) -> Response:
    """Return the performance of a replica at a rate, or of several replicas under `items`.

    The body or its items can also be rows of `inferplan analyze --batch`, for any kind of replica; the
    answers are those of the command.
    """
    text = await computed(request, analyze_body, body)
    return Response(text, media_type=JSON)


@router.post(
    "/size",
    response_model=ReplicaSizing | Sizings | answers_of("size"),
    summary="Size replicas",
    responses=problems(*REFUSALS),
)
async def size(
    request: Request,
    body: Annotated[
        bytes, JsonOf(reduce(or_, ROWS, SizingProblem | SizingProblems)), Body(openapi_examples=SIZINGS)
    ],
) -> Response:
    """Return the maximum rate at which a replica meets its targets, or those of several under `items`.

    If no rate meets the targets, a single replica is answered with 422, and an item with a `message` that
    states the reason. Rows of `inferplan size --batch` are accepted as in `/v1/analyze`.
    """
    text = await computed(request, size_body, body)
    return Response(text, media_type=JSON)


@router.get(
    "/memory",
    response_model=MemoryAnswer,
    summary="Compute how many requests fit in memory",
    responses=problems(*REFUSALS),
)
async def memory(
    request: Request, question: Annotated[MemoryQuestion, from_query(MemoryQuestion)]
) -> Response:
    """Return the requests that fit in the memory of each accelerator at the same time.

    Models and accelerators are those of the catalogue.
    """
    return Response(await computed(request, memory_text, question), media_type=JSON)
