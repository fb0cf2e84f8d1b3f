"""Phrases and sentences of explanations: prices, shares, service and limits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from optimizer.quantities import counted, quantity, share_text
from optimizer.render.plan_text import level_unit
from optimizer.schema.classes import priority_name
from optimizer.section import FormattedValue, Section, titled_list
from optimizer.solvers.objectives import VALUE
from optimizer.text import some_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optimizer.plan import Plan
    from optimizer.render.money import Money
    from optimizer.studies.explanation.explanation_document import Effect, EffectRange, ServiceChange

UNSETTLED = "not settled in time"
ALMOST_ALL = 0.9
"""Fraction of the cost, or of the unserved load: a bound that allows a larger decrease states nothing useful.
"""
MIN_LOAD_CHANGE_RPM = 1e-6
"""Smallest change of load that counts as a change, not as rounding [requests/min]."""
MANY = 1e6
"""Factors of at least this value are written with a power of ten."""


def service_sentence(effect: Effect, most: int = 2) -> str:
    """Return a sentence on the servers that an effect serves more or less, and on their reserves.

    Args:
        most: maximum number of servers that are named.
    """
    parts = [_served_text(item) for item in effect.service[:most]]
    more = len(effect.service) - most
    text = ", ".join(parts) + (f" and {more} more" if more > 0 else "")
    return "; ".join(part for part in (text, reserve_text(effect)) if part)


def changes_title(plan: Plan) -> str:
    """Return the title of a list of service changes; it mentions reserves if any server requires one."""
    return "Changes of service and reserves" if plan.requires_reserve else "Changes of service"


def reserve_text(effect: Effect) -> str:
    """Name the servers that gain or lose their reserve, except those whose full service also changes."""
    moved = {item.server for item in effect.service if item.in_full_before != item.in_full_after}
    parts = []
    for names, one, several in (
        (effect.reserves_lost, "loses its reserve", "lose their reserves"),
        (effect.reserves_gained, "gets its reserve", "get their reserves"),
    ):
        others = [name for name in names if name not in moved]
        if others:
            parts.append(f"{some_names(others)} {several if len(others) > 1 else one}")
    return ", ".join(parts)


def _served_text(item: ServiceChange) -> str:
    """Describe the change of one server's service."""
    shares = f"{share_text(item.served_before)} -> {share_text(item.served_after)}"
    if item.is_idle:
        return f"{item.server} {shares} of its replicas (idle)"
    if not item.load_change_rpm:
        now = "now" if item.in_full_after else "no longer"
        return f"{item.server} {now} with its minimum number of replicas"
    return f"{item.server} {shares} ({quantity(item.load_change_rpm, sign=True)} req/min)"


def part_text(part: str) -> str:
    """Return the name of a replica's bottleneck."""
    prefix, _, name = part.partition(":")
    words = {"server": "the server", "jobs": "the number of its jobs"}
    return words.get(prefix, f"the stage {name}")


def effect_text(effect: Effect, money: Money, plan: Plan) -> str:
    """Return the cost of an effect as text; if service changes, return that change, which has no price.

    The number of reserves gained or lost precedes the cost. An unproved cost is written as its interval.
    """
    unproved = effect.interval
    if unproved is not None and unproved.level != VALUE:
        return UNSETTLED
    if effect.service:
        return f"serves {served_word(effect)}"
    price = price_text(effect, money) if unproved is None else range_text(unproved, money, plan)
    return ", ".join(part for part in (reserves_count(effect), price) if part)


def reserves_count(effect: Effect) -> str:
    """Return the numbers of servers that gain and lose their reserve: ``+1 reserve``, ``+1 -2 reserves``."""
    counts = [
        f"{sign}{len(names):,}"
        for sign, names in (("+", effect.reserves_gained), ("-", effect.reserves_lost))
        if names
    ]
    one = len(effect.reserves_gained) + len(effect.reserves_lost) == 1
    return f"{' '.join(counts)} {'reserve' if one else 'reserves'}" if counts else ""


def moves(effect: Effect) -> bool:
    """Return whether an effect changes service or reserves.

    If it does, its cost compares plans with different service.
    """
    return bool(effect.service or effect.reserves_lost or effect.reserves_gained)


def served_word(effect: Effect) -> str:
    """Return a word for the change of service: more, less, or the same amount for other servers."""
    if effect.serves != "same":
        return effect.serves
    return "as much" if all(item.is_idle for item in effect.service) else "others"


def served_text(effect: Effect) -> str:
    """Describe the change of the served load, with its highest priority and the amount [requests/min]."""
    word = served_word(effect)
    for priority in sorted({item.priority for item in effect.service} if effect.serves != "same" else ()):
        here = [item for item in effect.service if item.priority == priority and not item.is_idle]
        load_rpm = sum(item.load_change_rpm for item in here)
        servers = sum(item.in_full_after - item.in_full_before for item in here)
        if (load_rpm > 0) == (effect.serves == "more") and abs(load_rpm) > MIN_LOAD_CHANGE_RPM:
            return f"{word} of {priority_name(priority)} ({quantity(load_rpm, sign=True)} req/min)"
        if servers:
            change = "more" if servers > 0 else "fewer"
            return f"{word} of {priority_name(priority)} ({counted(abs(servers), 'server')} {change} in full)"
    return word


def named_service_changes(plan: Plan, what: str, effects: Iterable[tuple[str, Effect]]) -> Iterator[Section]:
    """Yield a list of named changes with their effects on served load, by priority, and on reserves.

    Args:
        plan: the explained plan.
        what: end of the title of the list.
        effects: name and effect of each change.
    """
    yield from titled_list(
        f"{changes_title(plan)} {what}",
        (
            f"{name}: {f'serves {served_text(effect)}: ' if effect.service else ''}{service_sentence(effect)}"
            for name, effect in effects
            if moves(effect) and effect.interval is None
        ),
    )


def effect_value(effect: Effect, money: Money, plan: Plan) -> FormattedValue:
    """Return the cost of an effect as a table cell; programs read the cost change as a number."""
    priced = not moves(effect) and effect.interval is None
    return FormattedValue(
        effect_text(effect, money, plan), money.number(effect.cost_change_cents_per_h) if priced else None
    )


def is_unsettled(interval: EffectRange | None, plan: Plan) -> bool:
    """Return whether an interval is uninformative: no tighter than the bounds that hold for any change."""
    return interval is not None and interval.high == 0 and _is_trivial(interval, plan)


def _is_trivial(interval: EffectRange, plan: Plan) -> bool:
    """Return whether the lower end only states that a cost or an unserved load cannot be negative."""
    if interval.level == VALUE:
        return interval.low <= -ALMOST_ALL * plan.total_cost_cents_per_h
    return interval.low <= -ALMOST_ALL * next(x.value for x in plan.levels if x.name == interval.level)


def range_text(interval: EffectRange, money: Money, plan: Plan) -> str:
    """Return an interval as text, without its uninformative ends.

    An interval of the value is written in money, other intervals in the unit of their objective.
    """
    value = interval.level == VALUE
    up, down = ("costs", "saves") if value else ("rises by", "falls by")
    amount, end = (money.distance, partial(money_text, money=money)) if value else (_amount, _signed)
    if is_unsettled(interval, plan):
        return UNSETTLED
    if interval.low == 0 or (interval.high > 0 and _is_trivial(interval, plan)):
        return f"{up} at most {amount(interval.high)}"
    if interval.high == 0:
        return f"{down} at most {amount(interval.low)}"
    if _is_trivial(interval, plan):
        return f"{down} at least {amount(interval.high)}"
    return f"{end(interval.low)} to {end(interval.high)}"


def interval_text(interval: EffectRange, money: Money, plan: Plan) -> str:
    """Return the interval for the change of an objective as text, with its unit."""
    text = range_text(interval, money, plan)
    level = "" if interval.level == VALUE else f"{interval.level} "
    return f"{level}{text}" if text == UNSETTLED else f"{level}{text} {level_unit(interval.level, money)}"


def _amount(number: float) -> str:
    return quantity(abs(number))


def _signed(number: float) -> str:
    return quantity(number, sign=True)


def price_text(effect: Effect, money: Money) -> str:
    """Return a cost change as text, with the change of the value (transition cost) if their signs differ."""
    cost, value = effect.cost_change_cents_per_h, effect.value_change_cents_per_h
    if _same_sign(cost, value):
        return money_text(cost, money)
    return f"{money_text(cost, money)} (value {money_text(value, money)})"


def _same_sign(one: float, other: float) -> bool:
    return (one > 0) == (other > 0) and (one < 0) == (other < 0)


def more_text(effect: Effect, money: Money) -> str:
    """Return a cost change as text that says more or less, such as ``2.50 USD/h more``."""
    cost, value = effect.cost_change_cents_per_h, effect.value_change_cents_per_h
    text = f"{money.distance(cost)} {money.unit} {'more' if cost > 0 else 'less'}" if cost else "the same"
    return text if _same_sign(cost, value) else f"{text} (value {money_text(value, money)})"


def changes(effect: Effect) -> bool:
    """Return whether an effect changes, or can change, cost, value, service or reserves."""
    moneys = (effect.cost_change_cents_per_h, effect.value_change_cents_per_h)
    return any(moneys) or moves(effect) or effect.interval is not None


def factor_text(factor: float) -> str:
    """Return a factor with three significant digits, or up to nine if it would otherwise read as 1."""
    digits = next((digits for digits in range(3, 9) if float(f"{factor:.{digits}g}") != 1), 9)
    return f"{factor:,.0f}" if 999.5 <= factor < MANY else f"{factor:.{digits}g}"


def money_text(cents_per_h: float, money: Money) -> str:
    """Return a change of cost as text with its sign."""
    return f"{'+' if cents_per_h > 0 else '-'}{money.distance(cents_per_h)}" if cents_per_h else "0"
