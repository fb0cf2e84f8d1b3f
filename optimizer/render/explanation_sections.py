"""Sections of an explanation of a plan: an overview of all servers, or one server in depth."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeGuard

from optimizer.features.reserves.sections import replica_section
from optimizer.features.sections import explained_sections
from optimizer.limits.budget import BUDGET
from optimizer.limits.table import limit_label
from optimizer.money import in_cost_unit
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL, SHARED, Unserved
from optimizer.plan.placements import place_name, rows_of
from optimizer.quantities import counted, precise, quantity, share_text, significant
from optimizer.render.answer_text import shortage_text
from optimizer.render.estimates import estimates_notes
from optimizer.render.explanation_proof import proof_sections
from optimizer.render.explanation_text import (
    changes,
    changes_title,
    effect_value,
    is_unsettled,
    money_text,
    more_text,
    moves,
    named_service_changes,
    service_sentence,
)
from optimizer.render.money import Money
from optimizer.render.plan_sections import limit_columns, limit_unit, overload_section
from optimizer.render.plan_text import proof_text
from optimizer.render.server_sections import server_sections
from optimizer.section import (
    RPM,
    Column,
    FormattedValue,
    Paragraph,
    Section,
    name,
    sentence,
    table,
    titled_list,
    words,
)
from optimizer.studies.explanation.explanation_document import (
    IGNORES_CAPACITIES,
    Alternative,
    Effect,
    Explanation,
    LimitExplanation,
    RepairOptions,
    ServerExplanation,
    TargetPrice,
    UnitRepair,
    UnitValues,
    WishCost,
)
from optimizer.studies.shortage import Shortage, WayOut
from optimizer.text import capitalised
from optimizer.units import SECONDS_PER_MINUTE

_BY_POLICY = (
    "capacity that the fully served servers leave is given out by the saturation policy, which follows its "
    "order and does not search for the optimum."
)
_BY_IDLE = "an idle server then lacks its minimum number of replicas, whose cards serve the load of others."


def explanation_sections(explanation: Explanation) -> list[Section]:
    """Return all sections of an explanation: servers, cards, repairs, targets and proofs."""
    money, plan = Money.of(explanation.plan), explanation.plan
    notes = [*explanation.notes, *estimates_notes(plan)]
    parts = [_headline(explanation), *(sentence(f"Note: {note}.") for note in notes)]
    overload = overload_section(explanation.overload, plan)
    if explanation.server is None:
        parts += [*_overview(explanation, money), *_unserved(explanation), overload]
        parts += [*_types(explanation, money), *_limits(explanation, money)]
        parts += [*_wish_sections(explanation, money), *explained_sections(explanation, money)]
        parts += [replica_section(plan)] if plan.replica_counts else []
    else:
        of_pools = (server_sections(pool, explanation) for pool in explanation.servers)
        parts += [*chain.from_iterable(of_pools), *explained_sections(explanation, money), overload]
    if explanation.repair is not None:
        parts += _repair(
            explanation.repair,
            money,
            all_answered=not explanation.unanswered,
            required=bool(plan.requires_reserve),
        )
    return [*parts, *_targets(explanation.targets, money, plan), *proof_sections(explanation, money)]


def _headline(explanation: Explanation) -> Section:
    plan, money = explanation.plan, Money.of(explanation.plan)
    shortage = None if explanation.server is not None or plan.complete else _shortage(explanation)
    text = [] if shortage is None else [Paragraph(shortage_text(shortage, money), "bold red")]
    text.append(Paragraph(money.text(plan.total_cost_cents_per_h), "bold"))
    reserves = f"; {plan.reserve_text}" if plan.requires_reserve else ""
    unlimited = IGNORES_CAPACITIES in explanation.notes
    proof = capitalised(proof_text(plan, unlimited=unlimited))
    text.append(Paragraph(f"{capitalised(plan.service_text)}{reserves}. {proof}."))
    return Section(text=text)


def _shortage(explanation: Explanation) -> Shortage:
    """Return the unserved load of an explained plan, with the cheapest repair by cards."""
    plan, servers, repair = explanation.plan, explanation.servers, explanation.repair
    load_rps = sum(item.load_rpm for item in servers) / SECONDS_PER_MINUTE
    served_rps = sum(item.load_rpm * item.served_fraction for item in servers) / SECONDS_PER_MINUTE
    cheapest = None if repair is None else repair.cheapest
    way_out = None
    if repair is not None and cheapest is not None and cheapest.added:
        beyond = tuple(item.server for item in repair.beyond_units)
        way_out = WayOut(cheapest.added, cheapest.total_cost_cents_per_h, beyond)
    return Shortage(len(plan.short_servers), len(plan.documented), load_rps - served_rps, load_rps, way_out)


# --- all servers -----------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """One line of a server in the overview, with one of its pools and one of the next-best alternative."""

    item: ServerExplanation
    place: int

    def once(self, value: Callable[[ServerExplanation], Any]) -> Any:
        """Return a value of the server if this is its first line, else an empty cell.

        Args:
            value: function that returns the value.
        """
        return value(self.item) if self.place == 0 else FormattedValue("", None)


def _overview(explanation: Explanation, money: Money) -> Iterator[Section]:
    order = sorted(explanation.servers, key=lambda item: (item.priority, item.server))
    elsewhere = {
        server: place_name(*row.place)
        for server, rows in rows_of(explanation.plan).items()
        for row in reversed(rows)
        if row.mode != "own"
    }

    def alternative(item: ServerExplanation) -> list[str]:
        return _alternative(item, explanation.plan)

    def price(item: ServerExplanation) -> FormattedValue | None:
        known = item.next_best
        return None if known is None else effect_value(known.effect, money, explanation.plan)

    columns = (
        name("server", lambda line: FormattedValue(line.item.server * (line.place == 0), line.item.server)),
        name("runs on", lambda line: elsewhere.get(line.item.server) or _runs_on(*line)),
        words("limited by", lambda line: _limited_by(*line), rank=2, none=""),
        Column("headroom", lambda line: line.once(_headroom), RPM, quantity, 3),
        Column("headroom share", lambda line: line.once(_headroom_share), form=".1%", rank=5),
        name("next-best alternative", lambda line: "".join(alternative(line.item)[line.place :][:1])),
        Column("changes cost by", lambda line: line.once(price), money.unit),
    )
    lines = (
        _Line(item, place)
        for item in order
        for place in range(max(len(item.pools), len(alternative(item)), 1))
    )
    yield table("Why this accelerator", columns, lines, "overview")
    yield from titled_list(
        f"{changes_title(explanation.plan)} with the next-best alternative",
        (
            f"{item.server}: {service_sentence(item.next_best.effect)}"
            for item in order
            if _moves(item.next_best)
        ),
    )
    effects = [item.next_best.effect for item in order if item.next_best is not None]
    yield from _why_more("A next-best alternative", effects, explanation.plan)


def _moves(alternative: Alternative | None) -> TypeGuard[Alternative]:
    """Return whether an alternative is known and changes service or reserves.

    An alternative without replicas counts if its effect is proved.
    """
    if alternative is None or not (alternative.pools or alternative.effect.interval is None):
        return False
    return moves(alternative.effect)


def _why_none(item: ServerExplanation) -> str:
    return "not served" if item.served_fraction < 1 else "idle"


def _runs_on(item: ServerExplanation, place: int) -> str:
    if place < len(item.pools):
        pool = item.pools[place]
        return f"{pool.num_replicas:,} × {pool.accelerator}"
    return "" if item.pools else _why_none(item)


def _limited_by(item: ServerExplanation, place: int) -> str:
    return item.pools[place].limited_by if place < len(item.pools) else ""


def _headroom(item: ServerExplanation) -> float | FormattedValue | None:
    """Return the additional load that a server can carry [requests/min].

    A server that is not served in full gets its served share instead.
    """
    if item.served_fraction < 1:
        return FormattedValue(f"{share_text(item.served_fraction)} served", None)
    return item.headroom_rpm


def _headroom_share(item: ServerExplanation) -> float | None:
    return None if item.served_fraction < 1 else item.headroom_share


def _alternative(item: ServerExplanation, plan: Plan) -> list[str]:
    """Return the pools of a server's next-best alternative as text, or a word for what replaces them."""
    next_best = item.next_best
    if next_best is None:
        return ["not answered" if item.pools else "-"]
    pools = [f"{pool.num_replicas:,} × {pool.accelerator}" for pool in next_best.pools]
    if next_best.effect.interval is not None:
        return pools or ["none found"]
    names = {item.server, *(name for name, group in plan.group_of.items() if group == item.server)}
    lost = any(change.server in names and not change.in_full_after for change in next_best.effect.service)
    if next_best.rents:
        return [EXTERNAL]
    return pools or ["none" if lost else _without_pools(item.server, plan)]


def _without_pools(server: str, plan: Plan) -> str:
    """Describe how a server without its own replicas is served."""
    if server not in plan.routed:
        return SHARED
    _, use = plan.routed[server]
    return "large model alone" if server == use.small else "small model alone"


# --- accelerator types -----------------------------------------------------------------------------------


def _types(explanation: Explanation, money: Money) -> Iterator[Section]:
    used = name("type", "type"), Column("used", "used", form=",d", rank=1)
    if all(item.limit is None for item in explanation.types):
        yield table("Cards", used, explanation.types)
        return
    columns = (
        *used,
        Column("exist", "limit", form=",d", rank=1),
        Column("left", "left", form=",d"),
        *_worth(money, explanation.plan, lambda item: item.limit == 0),
    )
    limited = [item for item in explanation.types if item.limit is not None]
    others = ", ".join(
        f"{item.type} ({item.used:,} used)" for item in explanation.types if item.limit is None
    )
    notes = [f"Without a limit: {others}."] if others else []
    yield table("What a card is worth", columns, limited, "cards", notes=notes)
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
    yield from _service_of_units(
        "One card", ((f"1 {item.type}", item) for item in explanation.types), explanation.plan
    )


def _limits(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the table with the value of limits other than cards, if there are any."""
    if explanation.limits:
        columns = (
            *limit_columns(money, left=lambda item: item.left, step=lambda item: item.step),
            *_worth(money, explanation.plan, lambda item: item.amount < item.step, lambda item: item.step),
        )
        yield table("What one step of other limits is worth", columns, explanation.limits, "limits")
        yield from _service_of_units("One step", _limit_steps(explanation.limits, money), explanation.plan)


def _limit_steps(limits: Sequence[LimitExplanation], money: Money) -> Iterator[tuple[str, UnitValues]]:
    """Yield the text of one step of each limit, such as ``700 W (power)``, with the value of that step."""
    for item in limits:
        step = in_cost_unit(item.step, money.currency) if item.limit == BUDGET else item.step
        yield f"{quantity(step)} {limit_unit(item.limit, money)} ({limit_label(item.limit, item.item)})", item


def _worth(
    money: Money, plan: Plan, is_none: Callable[[Any], bool], step: Callable[[Any], float] = lambda _: 1.0
) -> tuple[Column, ...]:
    """Return the columns with the value of one more and one fewer step of a limit, and with its shadow price.

    Args:
        money: currency of the values.
        plan: the explained plan.
        is_none: whether a row has no step to remove.
        step: size of a row's step, in the unit of its shadow price.
    """

    def value(effect: Effect | None) -> FormattedValue:
        return FormattedValue("not answered", None) if effect is None else effect_value(effect, money, plan)

    def fewer(item: Any) -> FormattedValue:
        return FormattedValue("none to take", "none to take") if is_none(item) else value(item.one_fewer)

    def shadow_price(item: Any) -> float | None:
        price = item.shadow_price_cents_per_h
        return None if price is None else price * step(item)

    return (
        Column("one more", lambda item: value(item.one_more), money.unit),
        Column("one fewer", fewer, money.unit),
        money.column("shadow price", shadow_price, rank=2),
    )


def _service_of_units(what: str, steps: Iterable[tuple[str, UnitValues]], plan: Plan) -> Iterator[Section]:
    """Yield the list of servers whose service changes with one step more or fewer of a limit.

    Args:
        what: name of the step, for a sentence.
        steps: text and values of each step.
        plan: the explained plan.
    """
    named = list(steps)
    lines = [
        f"{sign}{text}: {service_sentence(effect)}"
        for text, item in named
        for sign, effect in (("+", item.one_more), ("-", item.one_fewer))
        if effect is not None and moves(effect)
    ]
    yield from titled_list(changes_title(plan), lines)
    fewer = [item.one_fewer for _, item in named if item.one_fewer is not None]
    yield from _why_more(f"{what} fewer", fewer, plan)


def _why_more(what: str, effects: Iterable[Effect], plan: Plan) -> Iterator[Section]:
    """Yield the reason that a restriction can let the plan serve more load, if any effect does.

    Args:
        what: name of the restriction.
        effects: effects of the restriction.
        plan: the explained plan.
    """
    more = [effect for effect in effects if effect.serves == "more"]
    for_idle = [effect for effect in more if any(item.is_idle for item in effect.service)]
    if for_idle:
        yield sentence(f"{what} can serve more: {_BY_IDLE}")
    rest = [effect for effect in more if effect not in for_idle]
    if rest and (_shares_leftover(rest) or any(0 < item.served_fraction < 1 for item in plan.unserved)):
        yield sentence(f"{what} can serve more: {_BY_POLICY}")


def _shares_leftover(effects: Iterable[Effect]) -> bool:
    """Return whether any server is served in part before or after a change.

    Only saturation policies serve in part.
    """
    changes = [item for effect in effects for item in effect.service]
    return any(0 < share < 1 for item in changes for share in (item.served_before, item.served_after))


def _unserved(explanation: Explanation) -> Iterator[Section]:
    plan = explanation.plan
    routed = plan.routed
    order = sorted(plan.unserved, key=lambda item: (item.priority, item.server))

    def line(item: Unserved) -> str:
        short = item.server in routed and item.reason == "capacity"
        alone = (
            f"too few cards for route {routed[item.server][0]} with its router; without it, " if short else ""
        )
        return f"{item.server} ({share_text(item.served_fraction)} served): {alone}{item.detail}"

    yield from titled_list("Not served in full", (line(item) for item in order))


# --- repair ----------------------------------------------------------------------------------------------


def _repair(repair: RepairOptions, money: Money, *, all_answered: bool, required: bool) -> Iterator[Section]:
    units = [("cheapest plan", repair.cheapest), ("fewest cards", repair.fewest)]
    units += [("one type", item) for item in repair.of_one_type]
    lines = [f"{title}: {_units(item, money)}" for title, item in units if item is not None]
    lines += [
        f"one target: {item.service_class}/{item.model} {item.metric.upper()} {precise(item.target_ms)} -> "
        f"{quantity(item.needed_ms, 10)} ms; the plan then costs {more_text(item.effect, money)}"
        for item in repair.relaxations
    ]
    if not repair.relaxations and all_answered:
        short = "a server that lacks service or its reserve" if required else "an unserved server"
        lines.append(f"one target: relaxing no single target of {short} is enough")
    if repair.common_factor is not None:
        lines.append(
            f"all their latency targets together: {quantity(repair.common_factor, 10)} times as long"
        )
    lines += [f"no number of cards serves {item.server}: {item.detail}" for item in repair.beyond_units]
    lines += [
        f"no number of cards gives {item.server} its reserve: {item.detail}"
        for item in repair.beyond_reserves
    ]
    beyond = repair.beyond_units or repair.beyond_reserves
    but = ", except what no number of cards can" if repair.cheapest and beyond else ""
    everything = "everything with all reserves" if required else "everything"
    yield from titled_list(f"What would serve {everything}{but}; each line is an alternative", lines)


def _units(repair: UnitRepair, money: Money) -> str:
    if not repair.added:
        return "none; the solver stopped before it used the existing ones, give it more time"
    added = " ".join(f"+{count:,} {name}" for name, count in repair.added.items())
    proof = "" if repair.proved else " (not proved to be the least)"
    change = money_text(repair.effect.cost_change_cents_per_h, money)
    return f"{added}; the plan then costs {money.text(repair.total_cost_cents_per_h)} ({change}){proof}"


# --- targets ---------------------------------------------------------------------------------------------


def _targets(targets: Sequence[TargetPrice], money: Money, plan: Plan) -> Iterator[Section]:
    settled = [item for item in targets if not is_unsettled(item.effect.interval, plan)]
    changing = [item for item in settled if changes(item.effect)]
    if changing:
        columns = (
            name("class", "service_class"),
            name("model", "model"),
            name("target", lambda item: item.metric.upper()),
            Column("limit", "target_ms", "ms", significant(6)),
            Column("relaxed", "relaxed_ms", "ms", significant(6), rank=1),
            Column("cost", lambda item: effect_value(item.effect, money, plan), money.unit),
        )
        yield table("What relaxing a target by 10 % changes", columns, changing, "targets")
        named = (
            (f"{item.service_class}/{item.model} {item.metric.upper()}", item.effect) for item in changing
        )
        yield from named_service_changes(plan, "with a relaxed target", named)
    rest, unsettled = len(settled) - len(changing), len(targets) - len(settled)
    if rest:
        yield sentence(_rest(rest, more=bool(changing) or bool(unsettled)))
    if unsettled:
        yield sentence(f"Not settled in time: relaxing {counted(unsettled, 'latency target')} by 10 %.")


def _rest(count: int, *, more: bool) -> str:
    """Return a sentence that relaxing a number of latency targets changes nothing.

    Args:
        count: the number of these targets.
        more: whether the explanation also lists other targets.
    """
    which = {True: "the other", False: "any of the" if count > 1 else "the"}[more]
    targets = "latency target" if count == 1 else counted(count, "latency target")
    return f"Relaxing {which} {targets} by 10 % changes nothing."


def _cost_without(plan: Plan, item: WishCost) -> float | None:
    """Return the total cost of a plan without an option [cents/h]; None if it is not proved."""
    effect = item.without
    return None if effect.interval else plan.total_cost_cents_per_h + effect.cost_change_cents_per_h


def _wish_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the table with the cost of reserves, limits, prices and preferences, if there are any."""
    if explanation.wishes:
        columns = [
            name("option", "option"),
            Column(
                "without it", lambda item: effect_value(item.without, money, explanation.plan), money.unit
            ),
        ]
        if any(item.without.service for item in explanation.wishes):
            columns.append(money.column("total cost then", partial(_cost_without, explanation.plan)))
        yield table("What options cost", columns, explanation.wishes, "options")
        named = ((item.option, item.without) for item in explanation.wishes)
        yield from named_service_changes(explanation.plan, "without an option", named)
