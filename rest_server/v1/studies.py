"""Routes of the studies under /v1: for a system in the body, and in a stateful service also for the fleet.

All of them are derived from the table of studies, except the comparison, which needs two plans.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from optimizer.jobs.study import Study
from optimizer.jobs.table import STUDIES
from optimizer.schema import SystemSpec
from optimizer.studies.comparison.comparison_document import Comparison
from rest_server.v1.examples import COMPARISONS, OTHER_SIDES
from rest_server.v1.models import CompareOptions, OtherSide, TwoSides, WrappedSystem
from rest_server.v1.planning import REFUSALS, SystemBody
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, RawRoute, computed, from_query, held_fleet
from rest_server.v1.study_work import compare_body, compare_fleet, study_body

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that prevent a page from running or fetching anything, whatever names it contains."""
_ANSWERS: dict[str, Any] = {"response_model": Comparison, "responses": problems(*REFUSALS)}

router = APIRouter(route_class=RawRoute, tags=["studies"])
fleet_router = APIRouter(route_class=RawRoute, tags=["fleet"])


@router.post("/compare", summary="Compare two plans", **_ANSWERS)
async def compare_plans(
    request: Request,
    body: Annotated[bytes, JsonOf(SystemSpec | WrappedSystem | TwoSides), Body(openapi_examples=COMPARISONS)],
    options: Annotated[CompareOptions, from_query(CompareOptions)],
) -> Response:
    """Return two plans side by side.

    For a single system, these are its unlimited and limited plans, or with `scale` or `random_load` its plans
    before and after that change. `first` and `second` are two systems to plan, or plans.
    """
    return Response(await computed(request, compare_body, body, options, study=True), media_type=JSON)


@fleet_router.post("/fleet/compare", name="compare_fleet", summary="Compare the fleet", **_ANSWERS)
async def compare_held(
    request: Request,
    options: Annotated[CompareOptions, from_query(CompareOptions)],
    body: Annotated[bytes, JsonOf(OtherSide), Body(openapi_examples=OTHER_SIDES)] = b"",
) -> Response:
    """Compare the plan of the fleet with that of another system, or with a plan, under `second`.

    Without a body, the unlimited and limited plans are compared, or with `scale` or `random_load` those
    before and after that change.
    """
    settings = request.app.state.settings
    work = partial(compare_fleet, body=body or b"", options=options, settings=settings)
    return Response(await _computed_for_fleet(request, work), media_type=JSON)


def _add_routes(name: str, study: Study[Any, Any]) -> None:
    """Add the routes of a study: for a system in the body, and for the fleet."""

    async def answer(
        request: Request,
        body: SystemBody,
        options: Annotated[study.options, from_query(study.options)],  # type: ignore[name-defined]  # known at run time
    ) -> Response:
        return _response(study, options, await computed(request, study_body, body, name, options, study=True))

    async def answer_for_fleet(
        request: Request,
        options: Annotated[study.options, from_query(study.options)],  # type: ignore[name-defined]  # known at run time
    ) -> Response:
        work = partial(study_body, name=name, options=options, settings=request.app.state.settings)
        return _response(study, options, await _computed_for_fleet(request, work))

    text: dict[str, Any] = {"schema": {"type": "string"}}
    content = {media_type.partition(";")[0]: text for media_type in study.media_types.values()}
    described: dict[str, Any] = {
        "methods": ["POST"],
        "description": study.description,
        "response_model": study.answer,
        "responses": problems(*REFUSALS) | ({200: {"content": content}} if content else {}),
    }
    router.add_api_route(f"/{name}", answer, name=f"{name}_system", summary=study.title, **described)
    fleet_router.add_api_route(
        f"/fleet/{name}",
        answer_for_fleet,
        name=f"{name}_fleet",
        summary=f"{study.title.partition(' ')[0]} the fleet",
        **described,
    )


def _response(study: Study[Any, Any], options: Any, content: bytes) -> Response:
    """Return the result of a study as a response, in the requested format."""
    media_type = study.media_types.get(getattr(options, "format", "json"), JSON)
    return Response(content, media_type=media_type, headers=PAGE_HEADERS if study.media_types else None)


async def _computed_for_fleet(request: Request, work: Any) -> bytes:
    """Return the result of work on the fleet, which is read when a worker becomes free."""
    held = held_fleet(request)

    def fleet() -> SystemSpec:
        return held.read()[1].spec()

    result: bytes = await request.app.state.study_workers.run(request, work, fleet)
    return result


for _name, _entry in STUDIES.items():
    _add_routes(_name, _entry.study)
