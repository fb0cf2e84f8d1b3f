"""The routes of /v1 for questions about plans: compare, explain, simulate, report, figure; without state."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from optimizer.spec.schema import SystemSpec
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.figures.document import Figure
from optimizer.studies.reports.report import Report
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from rest_server.v1.examples import COMPARISONS
from rest_server.v1.models import (
    CompareOptions,
    ExplainOptions,
    FigureOptions,
    ReportOptions,
    SimulateOptions,
    TwoSides,
    WrappedSystem,
)
from rest_server.v1.planning import REFUSALS, SystemBody
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, RawRoute, computed
from rest_server.v1.study_work import compare_body, explain_body, figure_body, report_body, simulate_body

MEDIA_TYPES = {
    "json": JSON,
    "html": "text/html; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
}
"""By the format that is asked for."""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
"""A page runs nothing and fetches nothing, whatever the names in it."""

router = APIRouter(route_class=RawRoute, tags=["studies"])


def _answers(model: Any, *formats: str) -> dict[str, Any]:
    """Return how a route is documented whose answer is a document, or a text in one of the formats."""
    text: dict[str, Any] = {"schema": {"type": "string"}}
    content = {MEDIA_TYPES[name].partition(";")[0]: text for name in formats}
    others: dict[int | str, dict[str, Any]] = {200: {"content": content}} if formats else {}
    return {"response_model": model, "responses": problems(*REFUSALS) | others}


ANSWERS: dict[str, dict[str, Any]] = {
    "compare": _answers(Comparison),
    "explain": _answers(Explanation),
    "simulate": _answers(Simulation | RepairedPlan),
    "report": _answers(Report, "html", "markdown", "csv"),
    "figure": _answers(Figure, "svg", "png", "pdf"),
}
"""What each study answers, of a document in the body and of the held fleet alike."""


async def _formatted(
    request: Request, work: Callable[..., bytes], body: bytes, options: ReportOptions | FigureOptions
) -> Response:
    """Return what work gives, in the format that is asked for."""
    return as_asked(await computed(request, work, body, options, study=True), options)


def as_asked(content: bytes, options: ReportOptions | FigureOptions) -> Response:
    """Return a page or a picture as an answer, in the format that was asked for."""
    return Response(content, media_type=MEDIA_TYPES[options.format], headers=PAGE_HEADERS)


@router.post("/compare", summary="Compare two plans", **ANSWERS["compare"])
async def compare_plans(
    request: Request,
    body: Annotated[bytes, JsonOf(SystemSpec | WrappedSystem | TwoSides), Body(openapi_examples=COMPARISONS)],
    options: Annotated[CompareOptions, Query()],
) -> Response:
    """Return two plans side by side.

    A system alone: its unlimited plan with its limited one, or with `scale` or `random_load` before and after
    that change. Under `first` and `second`: two systems, which are planned, or plans.
    """
    text = await computed(request, compare_body, body, options, study=True)
    return Response(text, media_type=JSON)


@router.post("/explain", summary="Explain a plan", **ANSWERS["explain"])
async def explain_plan(
    request: Request, body: SystemBody, options: Annotated[ExplainOptions, Query()]
) -> Response:
    """Return why the best plan is as it is, what units and targets are worth, and what would repair it.

    The system is solved again for every question, a hundred times and more: a large one may need a longer
    time for a request than the service gives.
    """
    text = await computed(request, explain_body, body, options, study=True)
    return Response(text, media_type=JSON)


@router.post("/simulate", summary="Simulate a plan, and repair it", **ANSWERS["simulate"])
async def simulate_pools(
    request: Request, body: SystemBody, options: Annotated[SimulateOptions, Query()]
) -> Response:
    """Return what the pools of the best plan do, request by request: predicted beside simulated figures.

    With `repair` the plan is made again until its pools keep their targets, or units are short; the answer
    is then the plan, its simulation, what was changed and what is lost.
    """
    text = await computed(request, simulate_body, body, options, study=True)
    return Response(text, media_type=JSON)


@router.post("/report", summary="Report a plan", **ANSWERS["report"])
async def report_plan(
    request: Request, body: SystemBody, options: Annotated[ReportOptions, Query()]
) -> Response:
    """Return a plan as a page to hand on, or as its numbers."""
    return await _formatted(request, report_body, body, options)


@router.post("/figure", summary="Draw a plan or a replica", **ANSWERS["figure"])
async def draw_figure(
    request: Request, body: SystemBody, options: Annotated[FigureOptions, Query()]
) -> Response:
    """Return a picture, or the numbers that it shows; where there is nothing to show, it says so in words."""
    return await _formatted(request, figure_body, body, options)
