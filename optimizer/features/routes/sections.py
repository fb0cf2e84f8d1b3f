"""The tables of routes in reports: the division of each kind's requests, the cost and the quality loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from optimizer.quantities import percent, quantity
from optimizer.render.explanation_text import effect_value
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, name, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optimizer.features.routes.uses import RoutedKind
    from optimizer.plan import Plan
    from optimizer.studies.explanation.explanation_document import Explanation
    from optimizer.studies.replay.replay_document import Replay


class _KindRow(NamedTuple):
    """Row of the table of kinds: a route, and one of its kinds of requests."""

    route: str
    kind: RoutedKind


def route_sections(plan: Plan) -> Iterator[Section]:
    """Yield the tables of a plan's routes and of their kinds of requests."""
    rows = [_KindRow(route, kind) for route, use in plan.routes.items() for kind in use.kinds]
    yield table("Routes", _route_columns(Money.of(plan)), list(plan.routes.items()), "routes")
    yield table("Requests of routes", _kind_columns(), rows, "requests")


def _range(kind: RoutedKind) -> str:
    return f"{quantity(100 * kind.least_share)} to {quantity(100 * kind.most_share)} %"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _route_columns(money: Money) -> list[Column]:
    return [
        name("route", lambda row: row[0]),
        words("router", lambda row: row[1].state),
        Column("to small", lambda row: row[1].small_rpm, RPM, quantity),
        Column("to large", lambda row: row[1].large_rpm, RPM, quantity),
        Column("rerun", lambda row: row[1].rerun_rpm, RPM, quantity, rank=4),
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
        name("kind", "kind.name"),
        Column("load", "kind.arrival_rate_rpm", RPM, quantity),
        Column("to small", lambda row: _percent(row.kind.small_share), "%", ".1f"),
        words("router sends", lambda row: _range(row.kind), rank=1),
        Column("worse", lambda row: _percent(row.kind.quality_lost), "%", ".2f"),
    ]


def loss_section(explanation: Explanation, money: Money) -> Section:
    """Return the table of the cost of quality limits."""
    columns = (
        name("route", "route"),
        Column("limit", lambda item: _percent(item.max_loss), "%", ".2f"),
        Column("other limit", lambda item: _percent(item.other), "%", ".2f"),
        Column("with it", lambda item: effect_value(item.effect, money, explanation.plan), money.unit),
    )
    return table("What limits on quality cost", columns, explanation.losses, "losses")


def replayed_route_section(replay: Replay) -> Section:
    """Return the table of routes in a replay."""
    columns = (
        name("way", lambda row: row[0].name),
        name("route", lambda row: row[1].route),
        Column("requests", lambda row: row[1].offered, form=",.0f"),
        Column("rerun", lambda row: row[1].rerun, form=",.0f", rank=2),
        Column("worse", lambda row: row[1].quality_lost, form=percent, rank=1),
        Column("missed", lambda row: row[1].missed / row[1].offered if row[1].offered else 0.0, form=percent),
    )
    rows = [(variant, route) for variant in replay.variants for route in variant.routes]
    return table("Routes", columns, rows, "routes")
