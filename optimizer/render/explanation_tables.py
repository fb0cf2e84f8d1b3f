"""An explanation as tables: an overview of all servers, or one server in depth."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeGuard

from rich.console import Group, RenderableType

from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.quantities import counted, precise, quantity, share_text
from optimizer.render import columns
from optimizer.render.estimates import estimates_note
from optimizer.render.explanation_proof import proof_parts
from optimizer.render.explanation_words import (
    binding_text,
    changes,
    effect_value,
    money_text,
    more_text,
    sentence,
    service_text,
    titled_list,
)
from optimizer.render.money import Money
from optimizer.render.plan_tables import overload_table
from optimizer.render.server_tables import server_parts
from optimizer.render.tables import Paragraph, Said, Table
from optimizer.studies.explanation.document import (
    Alternative,
    Effect,
    Explanation,
    Repair,
    ServerExplanation,
    TargetPrice,
    TypeExplanation,
    UnitRepair,
)

_BY_POLICY = (
    "capacity that the fully served servers leave is given out by the saturation policy, which follows its "
    "order and does not search for the optimum."
)
_BY_IDLE = "an idle server goes without its least replicas then, and their cards serve load of others."


def explanation_tables(explanation: Explanation) -> Group:
    """Return an explanation as tables and sentences."""
    money = Money.of(explanation.plan)
    parts: list[RenderableType] = [_headline(explanation)]
    estimates = estimates_note(explanation.plan)
    notes = [*explanation.notes, *([estimates] if estimates else [])]
    parts += [sentence(f"Note: {note}.") for note in notes]
    if explanation.server is None:
        parts += [*_overview(explanation, money), *_unserved(explanation)]
        parts += [overload_table(explanation.overload, explanation.plan), *_types(explanation, money)]
        parts += _limits(explanation, money)
        parts += _wishes(explanation, money)
    else:
        parts += list(server_parts(explanation.servers[0], explanation))
        parts.append(overload_table(explanation.overload, explanation.plan))
    if explanation.repair is not None:
        parts += list(_repair(explanation.repair, money, all_answered=not explanation.unanswered))
    parts += list(_targets(explanation.targets, money))
    parts += list(proof_parts(explanation, money))
    return Group(*parts)


def _headline(explanation: Explanation) -> Paragraph:
    plan = explanation.plan
    servers = len({*plan.allocations} | {item.server for item in plan.unserved})
    mode = "limited" if any(item.limit is not None for item in plan.capacity) else "unlimited"
    served = f"{servers - len(plan.unserved):,} of {counted(servers, 'server')} served in full"
    stopped = "" if plan.status == "optimal" else ", the solver stopped early"
    gap = f", gap {plan.gap:.2%}" if plan.gap else ""
    return Paragraph(
        f"{Money.of(plan).text(plan.total_cost_cents_per_h)}   {mode} plan{stopped}{gap}, {served}\n", "bold"
    )


# --- all servers -----------------------------------------------------------------------------------------


def _overview(explanation: Explanation, money: Money) -> Iterator[RenderableType]:
    table = Table("Why this accelerator", money.columns(columns.OVERVIEW), "overview")
    order = sorted(explanation.servers, key=lambda item: (item.priority, item.server))
    rented = {item.server for item in explanation.plan.rented}
    for item in order:
        others = _pools(item)
        for i in range(max(len(item.pools), len(others), 1)):
            first = i == 0
            table.add_row(
                item.server if first else Said("", item.server),
                *_runs_on(item, i, rented),
                *(_headroom(item) if first else (Said("", None), Said("", None))),
                others[i] if i < len(others) else "",
                _price(item.next_best, money) if first else Said("", None),
            )
    yield table
    yield from titled_list(
        "Changes of service with the next-best alternative",
        (f"{item.server}: {service_text(item.next_best.effect)}" for item in order if _moves(item.next_best)),
    )
    effects = [item.next_best.effect for item in order if item.next_best is not None]
    yield from _why_more("A next-best alternative", effects, explanation.plan)


def _moves(alternative: Alternative | None) -> TypeGuard[Alternative]:
    """Return whether there is an alternative that changes who is served."""
    return alternative is not None and bool(alternative.effect.service)


def _why_none(item: ServerExplanation) -> str:
    return "not served" if item.served_fraction < 1 else "idle"


def _runs_on(item: ServerExplanation, i: int, rented: Collection[str]) -> tuple[str | None, str]:
    """Return what a pool runs on, and what binds it; nothing where there is no such pool."""
    if i < len(item.pools):
        pool = item.pools[i]
        return f"{pool.num_replicas:,} x {pool.accelerator}", binding_text(pool.binding)
    if item.server in rented:
        return EXTERNAL, ""
    return "" if item.pools else _why_none(item), ""


def _headroom(item: ServerExplanation) -> tuple[float | Said | None, float | None]:
    """Return the load that a server can take in addition, and its share of the load that it has."""
    if item.served_fraction < 1:
        return Said(f"{share_text(item.served_fraction)} served", None), None
    return item.headroom_rpm, item.headroom_share


def _pools(item: ServerExplanation) -> list[str]:
    if item.next_best is None:
        return ["not answered" if item.pools else "-"]
    none = "none" if item.next_best.effect.interval is None else "none found"
    return [f"{pool.num_replicas:,} x {pool.accelerator}" for pool in item.next_best.pools] or [none]


def _price(alternative: Alternative | None, money: Money) -> Said | None:
    return None if alternative is None else effect_value(alternative.effect, money)


# --- accelerator types -----------------------------------------------------------------------------------


def _types(explanation: Explanation, money: Money) -> Iterator[RenderableType]:
    limited = any(item.limit is not None for item in explanation.types)
    if not limited:
        table = Table("Cards", columns.USED, "cards")
        for item in explanation.types:
            table.add_row(item.type, item.used)
        yield table
        return
    table = Table("What a card is worth", money.columns(columns.WORTH), "cards")
    for item in explanation.types:
        table.add_row(
            item.type,
            item.used,
            item.limit or 0,
            item.left or 0,
            _card_value(item.one_more, money),
            "none to take" if item.limit == 0 else _card_value(item.one_fewer, money),
            money.number(item.shadow_price_cents_per_h),
        )
    yield table
    priced = [item for item in explanation.types if item.shadow_price_cents_per_h]
    if priced:
        yield sentence(
            "Shadow price of a card: what a small fraction of one more card would save of the objective, per "
            f"card, if replicas were divisible [{money.unit}]."
            + (
                " Divisible replicas would also use up types of which cards are left."
                if any(item.left for item in priced)
                else ""
            )
        )
    yield from _service_of_units(explanation.types, explanation.plan)


def _limits(explanation: Explanation, money: Money) -> Iterator[RenderableType]:
    """Yield what is limited beside cards, if anything is."""
    if explanation.limits:
        table = Table("What other limits are worth", money.columns(columns.LIMITS_WORTH), "limits")
        for item in explanation.limits:
            table.add_row(
                item.limit,
                item.item,
                item.used,
                item.amount,
                item.left,
                _card_value(item.one_more, money),
                "none to take" if item.amount == 0 else _card_value(item.one_fewer, money),
                money.number(item.shadow_price_cents_per_h),
            )
        yield table


def _wishes(explanation: Explanation, money: Money) -> Iterator[RenderableType]:
    """Yield what options cost that make the plan hold tomorrow, if it has any."""
    if explanation.wishes:
        table = Table("What options cost", money.columns(columns.WISHES), "options")
        for item in explanation.wishes:
            with_reserve = -item.without.without_reserve_change_rpm
            table.add_row(item.option, effect_value(item.without, money), with_reserve or None)
        yield table


def _card_value(effect: Effect | None, money: Money) -> Said:
    return Said("not answered", None) if effect is None else effect_value(effect, money)


def _service_of_units(types: Sequence[TypeExplanation], plan: Plan) -> Iterator[RenderableType]:
    lines = [
        f"{what} {item.type}: {service_text(effect)}"
        for item in types
        for what, effect in (("+1", item.one_more), ("-1", item.one_fewer))
        if effect is not None and effect.service
    ]
    yield from titled_list("Changes of service", lines)
    fewer = [item.one_fewer for item in types if item.one_fewer is not None]
    yield from _why_more("One card fewer", fewer, plan)


def _why_more(what: str, effects: Iterable[Effect], plan: Plan) -> Iterator[RenderableType]:
    """Yield why something that only restricts the plan can serve more load."""
    more = [effect for effect in effects if effect.serves == "more"]
    for_idle = [effect for effect in more if any(item.is_idle for item in effect.service)]
    if for_idle:
        yield sentence(f"{what} can serve more: {_BY_IDLE}")
    rest = [effect for effect in more if effect not in for_idle]
    if rest and (_shares_leftover(rest) or any(0 < item.served_fraction < 1 for item in plan.unserved)):
        yield sentence(f"{what} can serve more: {_BY_POLICY}")


def _shares_leftover(effects: Iterable[Effect]) -> bool:
    """Return whether a part of a load is served anywhere, which only a saturation policy does."""
    changes = [item for effect in effects for item in effect.service]
    return any(0 < share < 1 for item in changes for share in (item.served_before, item.served_after))


def _unserved(explanation: Explanation) -> Iterator[RenderableType]:
    order = sorted(explanation.plan.unserved, key=lambda item: (item.priority, item.server))
    lines = (f"{item.server} ({share_text(item.served_fraction)} served): {item.detail}" for item in order)
    yield from titled_list("Not served in full", lines)


# --- repair ----------------------------------------------------------------------------------------------


def _repair(repair: Repair, money: Money, *, all_answered: bool) -> Iterator[RenderableType]:
    units = [("cheapest plan", repair.cheapest), ("fewest cards", repair.fewest)]
    units += [("one type", item) for item in repair.of_one_type]
    lines = [f"{title}: {_units(item, money)}" for title, item in units if item is not None]
    lines += [
        f"one target: {item.service_class}/{item.model} {item.metric.upper()} {precise(item.target_ms)} -> "
        f"{quantity(item.needed_ms, 10)} ms; the plan then costs {more_text(item.effect, money)}"
        for item in repair.relaxations
    ]
    if not repair.relaxations and all_answered:
        lines.append("one target: relaxing no single target of an unserved server is enough")
    if repair.common_factor is not None:
        lines.append(
            f"all their latency targets together: {quantity(repair.common_factor, 10)} times as long"
        )
    lines += [f"no number of cards serves {item.server}: {item.detail}" for item in repair.beyond_units]
    but = ", except what no number of cards can serve" if repair.cheapest and repair.beyond_units else ""
    yield from titled_list(f"What would serve everything{but}; each line is an alternative", lines)


def _units(repair: UnitRepair, money: Money) -> str:
    if not repair.added:
        return "none; the solver stopped before it used the existing ones, give it more time"
    added = " ".join(f"+{count:,} {kind}" for kind, count in repair.added.items())
    proof = "" if repair.proved else " (not proved to be the least)"
    change = money_text(repair.effect.cost_change_cents_per_h, money)
    return f"{added}; the plan then costs {money.text(repair.total_cost_cents_per_h)} ({change}){proof}"


# --- targets ---------------------------------------------------------------------------------------------


def _targets(targets: Sequence[TargetPrice], money: Money) -> Iterator[RenderableType]:
    changing = [item for item in targets if changes(item.effect)]
    if changing:
        table = Table("What relaxing a target by 10 % changes", money.columns(columns.TARGETS), "targets")
        for item in changing:
            table.add_row(
                item.service_class,
                item.model,
                item.metric.upper(),
                item.target_ms,
                item.relaxed_ms,
                effect_value(item.effect, money),
            )
        yield table
    rest = len(targets) - len(changing)
    if rest:
        yield sentence(_rest(rest, more=bool(changing)))


def _rest(count: int, *, more: bool) -> str:
    """Say that some targets cost nothing, beside others that do or alone."""
    which = {True: "the other", False: "any of the" if count > 1 else "the"}[more]
    targets = "latency target" if count == 1 else counted(count, "latency target")
    return f"Relaxing {which} {targets} by 10 % changes nothing."
