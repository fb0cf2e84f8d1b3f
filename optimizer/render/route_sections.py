"""Sections of routes: where the requests of each kind go, and what that costs and loses."""

from collections.abc import Iterator
from typing import NamedTuple

from optimizer.plan import Plan
from optimizer.plan.document import RoutedKind, RouteUse
from optimizer.quantities import quantity
from optimizer.render.money import Money
from optimizer.section import Column, Section, name, table, words
from optimizer.spec.schema import RequestKind
from optimizer.spec.system import System

RPM = "req/min"


class _KindRow(NamedTuple):
    """A kind of requests of a route."""

    route: str
    use: RouteUse
    kind: RequestKind
    routed: RoutedKind
    rate_rpm: float

    @property
    def share(self) -> float:
        return 100 * self.routed.small_share

    @property
    def range(self) -> str:
        return f"{quantity(100 * self.kind.wrong)}-{quantity(100 * (1 - self.kind.miss))}"

    @property
    def lost(self) -> float:
        return 100 * self.kind.share * self.kind.loss * self.routed.small_share


def route_sections(plan: Plan, system: System) -> Iterator[Section]:
    """Yield the routes of a plan, and the kinds of their requests, if there are any."""
    if not plan.routes:
        return
    yield table("Routes", _route_columns(Money.of(plan)), list(plan.routes.items()), "routes")
    yield table("Requests of routes", _kind_columns(), list(_rows(plan, system)), "route_kinds")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _route_columns(money: Money) -> list[Column]:
    return [
        name("route", lambda row: row[0]),
        words("router", lambda row: row[1].state),
        Column("to small", lambda row: row[1].small_rpm, RPM, quantity),
        Column("to large", lambda row: row[1].large_rpm, RPM, quantity),
        Column("of it again", lambda row: row[1].rerun_rpm, RPM, quantity, rank=4),
        Column("small tokens", lambda row: _percent(row[1].small_token_share), "%", ".1f", rank=3),
        Column("worse", lambda row: _percent(row[1].quality_lost), "%", ".2f"),
        Column("limit", lambda row: _percent(row[1].max_loss), "%", ".2f"),
        money.column("cost", lambda row: row[1].cost_cents_per_h),
        money.column("all large", lambda row: row[1].all_large_cents_per_h),
        Column("saving", lambda row: _percent(row[1].saving), "%", ".1f"),
    ]


def _kind_columns() -> list[Column]:
    return [
        name("route", "route", rank=2),
        name("kind", "routed.name"),
        Column("load", "rate_rpm", RPM, quantity),
        Column("to small", "share", "%", ".1f"),
        words("router sends", "range", rank=1),
        Column("worse", "lost", "%", ".2f"),
    ]


def _rows(plan: Plan, system: System) -> Iterator[_KindRow]:
    for route_name, use in plan.routes.items():
        route = system.routes[route_name]
        for kind, routed in zip(route.kinds, use.kinds, strict=True):
            yield _KindRow(route_name, use, kind, routed, route.arrival_rate_rpm * kind.share)
