"""Sections that explain one server: pools, next-best alternative, candidates and rejected pairs."""

from collections.abc import Iterator

from optimizer.plan import Plan
from optimizer.plan.placements import rows_of
from optimizer.quantities import precise, quantity, share_text
from optimizer.render.explanation_text import (
    effect_value,
    factor_text,
    interval_text,
    more_text,
    moves,
    named_service_changes,
    part_text,
    reserve_text,
    served_text,
    service_sentence,
)
from optimizer.render.money import Money
from optimizer.render.plan_sections import rejected_section
from optimizer.render.plan_text import figures_text
from optimizer.section import Column, FormattedValue, Section, name, sentence, table, words
from optimizer.studies.explanation.explanation_document import (
    Alternative,
    Explanation,
    Option,
    RejectedAccelerator,
    ReservedSize,
    ServerExplanation,
)

UNPROFILED = "no_profile"
"""Reason why a model cannot run on an accelerator without a profile; documents omit such pairs on purpose."""


def server_sections(item: ServerExplanation, explanation: Explanation) -> Iterator[Section]:
    """Yield the sentences and tables that explain the placement of one server."""
    yield sentence(
        f"{item.server}: {item.model} for class {item.service_class}, priority {item.priority}, "
        f"{precise(item.load_rpm)} requests/min"
    )
    yield from (sentence(text) for text in _verdict(item, explanation))
    if item.options:
        yield _candidates(item, Money.of(explanation.plan), explanation.plan)
        forced = ((option.accelerator, option.forced) for option in item.options)
        yield from named_service_changes(
            explanation.plan,
            "if it runs there",
            ((name, answer.effect) for name, answer in forced if answer is not None),
        )
        if item.server in explanation.plan.routed:
            route, _ = explanation.plan.routed[item.server]
            yield sentence(f"Replicas are for the largest load that route {route} can send it.")
    yield from _rejections(item)


def _verdict(item: ServerExplanation, explanation: Explanation) -> Iterator[str]:
    money = Money.of(explanation.plan)
    if not item.pools and item.served_fraction == 1:
        yield _elsewhere(item.server, explanation.plan, money)
        return
    for unserved in explanation.plan.unserved:
        if unserved.server == item.server:
            whole = "load is served" if item.load_rpm else "least number of replicas runs"
            yield f"{share_text(unserved.served_fraction)} of its {whole}: {unserved.detail}."
    for pool in item.pools:
        if pool.role:
            cost = money.text(pool.cost_cents_per_h)
            yield f"{pool.num_replicas:,} × {pool.accelerator} with the role {pool.role} for {cost}."
            continue
        yield (
            f"It runs on {pool.num_replicas:,} × {pool.accelerator} with batch {pool.max_batch} for "
            f"{money.text(pool.cost_cents_per_h)}"
            + (f", limited by: {pool.limited_by}." if pool.limited_by else ". It has no load.")
        )
    for placed in explanation.plan.allocations.get(item.server, ()):
        if placed.other_targets:
            yield f"On {placed.accelerator}, with limits in brackets: {figures_text(placed.other_targets)}."
        if placed.binding:
            yield f"On {placed.accelerator}, {part_text(placed.binding)} is the bottleneck."
    yield from _room(item)
    if item.next_best is not None:
        yield _next_best(item.next_best, money, explanation.plan)


def _room(item: ServerExplanation) -> Iterator[str]:
    """Yield sentences on the additional load that a server can carry, and on a missing reserve."""
    if item.has_reserve is False and item.served_fraction == 1:
        yield "It lacks its reserve."
    if item.headroom_rpm is not None and item.headroom_rpm >= 0:
        kept = " to keep its reserve" if item.has_reserve else ""
        bare = " for its load alone" if item.has_reserve is False else ""
        yield (
            f"It can still take {quantity(item.headroom_rpm)} requests/min ({item.headroom_share:.1%}) "
            f"before another replica is needed{kept}{bare}."
        )


def _elsewhere(server: str, plan: Plan, money: Money) -> str:
    """Describe what serves a server without its own cards, and its cost."""
    rows = rows_of(plan).get(server, ())
    cost = money.text(sum(row.cost_cents_per_h for row in rows))
    shared = [row for row in rows if row.mode == "shared"]
    if shared:
        cards = ", ".join(f"{row.count:,} × {row.spot.accelerator} {row.spot.group}" for row in shared)
        return f"It runs on shared cards ({cards}); its part of their cost is {cost}."
    if rows:
        return f"Its external service answers its requests for {cost}."
    route, use = plan.routed.get(server, ("", None))
    if use is not None and server == use.small:
        return f"Route {route} sends it no requests."
    return "It is idle and needs no replicas."


def _next_best(alternative: Alternative, money: Money, plan: Plan) -> str:
    effect = alternative.effect
    where = ", ".join(f"{pool.num_replicas:,} × {pool.accelerator}" for pool in alternative.pools)
    left = "would rent" if alternative.rents else "has no cards of its own"
    start = f"Next-best alternative: {where}" if where else f"Without its accelerators it {left}"
    start += "; the plan"
    if effect.interval is not None:
        next_best = where or "none"
        return (
            f"Best alternative found: {next_best}; not proved: {interval_text(effect.interval, money, plan)}."
        )
    if effect.service:
        return f"{start} would serve {served_text(effect)}: {service_sentence(effect)}."
    if moves(effect):
        cost = f"it would cost {more_text(effect, money)}"
        return f"{start} would serve the same with other reserves: {reserve_text(effect)}; {cost}."
    return f"{start} would cost {more_text(effect, money)}."


def _candidates(item: ServerExplanation, money: Money, plan: Plan) -> Section:
    chosen = {pool.accelerator for pool in item.pools}
    required = item.has_reserve is not None

    def size(option: Option) -> Option | ReservedSize:
        return option if not item.has_reserve or option.with_reserve is None else option.with_reserve

    def accelerator(option: Option) -> FormattedValue:
        mark = " *" if option.accelerator in chosen else ""
        return FormattedValue(option.accelerator + mark, option.accelerator)

    columns = (
        name("accelerator", accelerator),
        Column("for its load" if required else "replicas", "num_replicas", form=",d"),
        *([Column("with reserve", "with_reserve.num_replicas", form=",d", none="none")] if required else ()),
        Column("cards", lambda option: size(option).units, form=",d"),
        name("type", "type", rank=3),
        Column("batch", "max_batch", form="d", rank=2),
        money.column("own cost", lambda option: size(option).cost_cents_per_h, rank=1),
        words("limited by", "limited_by", none=""),
        Column("changes cost by", lambda option: _forced(option, money, plan), money.unit),
    )
    title = "Where it can run, and the additional cost of the plan (* runs there)"
    notes = (
        [f"Cards and own cost are with{'' if item.has_reserve else 'out'} the reserve."] if required else []
    )
    return table(title, columns, item.options, "candidates", notes=notes)


def _forced(option: Option, money: Money, plan: Plan) -> FormattedValue | str | None:
    if option.forced is None:
        return None
    is_served = option.forced.pools or option.forced.effect.interval is not None
    return effect_value(option.forced.effect, money, plan) if is_served else "not served there"


def _miss(pair: RejectedAccelerator) -> FormattedValue | None:
    return None if pair.factor is None else FormattedValue(f"x {factor_text(pair.factor)}", pair.factor)


def _rejections(item: ServerExplanation) -> Iterator[Section]:
    """Yield the accelerators on which a server misses a target, and those without a profile."""
    columns = name("accelerator", "accelerator"), Column("misses by", _miss)
    unknown = [row.accelerator for row in item.rejections if row.reason == UNPROFILED]
    sized = [row for row in item.rejections if row.reason != UNPROFILED]
    if sized:
        yield rejected_section("Where it cannot run", sized, columns)
    if unknown:
        yield sentence(f"No token times of {item.model} are given on {', '.join(unknown)}.")
