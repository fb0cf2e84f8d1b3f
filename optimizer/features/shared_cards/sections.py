"""The table of shared cards in reports: servers on each card, their metrics, and the saving by sharing."""

from collections.abc import Iterator
from typing import NamedTuple

from optimizer.features.nodes.view import node_shares_cents_per_h
from optimizer.features.shared_cards.uses import SharedCardUse, SharedPool
from optimizer.plan import Plan
from optimizer.quantities import counted, percent, quantity
from optimizer.render.money import Money
from optimizer.section import RPM, Column, FormattedValue, Section, name, table, words
from optimizer.spec.system import System

_MODES = {"whole": "whole card", "shares": "in shares", "slices": "in slices", "time": "in time"}


class _Row(NamedTuple):
    """Row of the table: a server on a group of shared cards."""

    use: SharedCardUse
    item: SharedPool
    mean_limit_ms: float | None
    is_first: bool

    def once(self, text: str, value: str | int) -> FormattedValue:
        """Return a cell with a value of the group in the row of its first server, else an empty cell."""
        return FormattedValue(text if self.is_first else "", value)

    @property
    def part(self) -> str:
        """Describe the part of a card that the server's replicas occupy: ``2 x 0.25, 8 GB``."""
        item, memory = self.item, f"{quantity(self.item.memory_gb * self.item.per_card)} GB"
        parts = {
            "shares": f"{item.per_card} × {quantity(item.share or 0.0)}, {memory}",
            "slices": f"{item.per_card} × {item.accelerator}",
        }
        return parts.get(self.use.mode, memory)


def shared_card_sections(plan: Plan, system: System | None = None) -> Iterator[Section]:
    """Yield the table of a plan's shared cards, if any; with targets of means if `system` is given."""
    if plan.shared_cards:
        money = Money.of(plan)
        tokens = any(item.itl_ms for use in plan.shared_cards for item in use.servers)
        columns = _columns(money, tokens=tokens)
        yield table("Shared cards", columns, _rows(plan, system), "shared", notes=_saving(plan, money))


def _columns(money: Money, *, tokens: bool) -> list[Column]:
    """Return the columns of the table: TTFT and ITL if servers have tokens, otherwise the latency."""

    def of_item(heading: str, field: str, unit: str = "", form: object = ",.0f", **more: object) -> Column:
        return Column(heading, lambda row: getattr(row.item, field), unit, form, **more)  # type: ignore[arg-type]

    return [
        name("on", lambda row: row.once(row.use.accelerator, row.use.accelerator)),
        Column("cards", lambda row: row.once(f"{row.use.num_cards:,}", row.use.num_cards)),
        words("shared", lambda row: row.once(_MODES[row.use.mode], row.use.mode), rank=2),
        name("server", lambda row: row.item.server),
        words("takes", lambda row: row.part, rank=1),
        of_item("load", "arrival_rate_rpm", RPM, quantity),
        of_item("capacity", "max_arrival_rate_rpm", RPM, quantity, rank=4),
        *([of_item("ITL", "itl_ms", "ms", ",.1f")] if tokens else []),
        of_item("TTFT" if tokens else "latency", "ttft_ms", "ms"),
        Column("target", "mean_limit_ms", "ms", ",.0f", none="", rank=5),
        words(
            "targets", lambda row: "; ".join(each.text for each in row.item.other_targets), rank=3, none=""
        ),
        of_item("util", "utilization", form=".0%", rank=6),
        money.column("cost", lambda row: row.item.cost_cents_per_h),
    ]


def _rows(plan: Plan, system: System | None) -> Iterator[_Row]:
    in_nodes = node_shares_cents_per_h(plan.nodes)
    for use in plan.shared_cards:
        more = in_nodes.get((use.name, use.accelerator), 0.0) / len(use.servers)
        for i, pool in enumerate(use.servers):
            item = pool.model_copy(update={"cost_cents_per_h": pool.cost_cents_per_h + more})
            target = None if system is None else system.target_of(system.servers[item.server])
            limits = dict(target.latency_targets()) if target is not None else {}
            means = [
                limit
                for measure, limit in limits.items()
                if measure.percentile is None and measure.metric != "itl"
            ]
            yield _Row(use, item, min(means, default=None), i == 0)


def _saving(plan: Plan, money: Money) -> list[str]:
    """Describe the saving of sharing compared with full cards for the same servers, as sentences."""
    servers = {item.server: item for use in plan.shared_cards for item in use.servers}
    whole = [item.whole_cost_cents_per_h for item in servers.values()]
    if any(cost is None for cost in whole):
        return []
    alone, shared = sum(cost or 0.0 for cost in whole), sum(use.cost_cents_per_h for use in plan.shared_cards)
    own = sum(item.whole_cards.num_replicas for item in servers.values() if item.whole_cards)
    if alone <= shared:
        return []
    saved = f"{money.text(alone - shared)}, {percent((alone - shared) / alone)}"
    whole_cards = f"{money.text(alone)} ({counted(own, 'replica')})"
    return [f"Cards of their own would cost these servers {whole_cards}; sharing saves {saved}."]
