"""The project's own API: all its routes in one router, which is mounted under /v1."""

from collections.abc import Callable, Iterable

from fastapi import APIRouter, Depends, HTTPException
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from rest_server.v1 import control_loop, fleet, planning, studies, targets
from rest_server.v1.entities import entities_router
from rest_server.v1.requests import known_query

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"})


def api_router(*, stateful: bool) -> APIRouter:
    """Return the routes of /v1; for a stateless service, only those that compute."""
    parts = [planning.router, studies.router]
    if stateful:
        parts += [entities_router(), fleet.router, studies.fleet_router, control_loop.router, targets.router]
    router = APIRouter()
    for part in parts:
        router.include_router(part, dependencies=[Depends(known_query)])
    _refuse_other_methods(router, (route for part in parts for route in part.routes))
    return router


def _refuse_other_methods(router: APIRouter, routes: Iterable[BaseRoute]) -> None:
    """Respond with 405 and all methods of a path.

    By default, a router lists only those of its first route.
    """
    allowed: dict[str, set[str]] = {}
    for route in routes:
        if isinstance(route, APIRoute):
            allowed.setdefault(route.path, set()).update(route.methods or ())
    for path, methods in allowed.items():
        router.add_api_route(
            path, _refusal(methods), methods=sorted(METHODS - methods), include_in_schema=False
        )


def _refusal(methods: Iterable[str]) -> Callable[[], None]:
    allow = ", ".join(sorted(methods))

    def refuse() -> None:
        raise HTTPException(405, f"the method is not one of {allow}", headers={"Allow": allow})

    return refuse
