"""An explanation as tables: an overview of all servers, or one server in depth; at most 100 columns wide."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from optimizer.report.tables import make_table
from optimizer.study.explanation import (
    Alternative,
    Binding,
    Effect,
    Explanation,
    Option,
    Repair,
    ServerExplanation,
    TargetPrice,
    TypeExplanation,
    UnitRepair,
)

WIDTH = 98
"""Characters of a line of text."""

_LIMITS = {
    "itl": "ITL",
    "ttft": "TTFT",
    "throughput": "throughput",
    "stability": "stability",
    "step": "step",
    "batch": "batch",
    "memory": "memory",
}


def explanation_tables(explanation: Explanation) -> Group:
    """Return an explanation as tables and sentences."""
    parts: list[RenderableType] = [_headline(explanation)]
    parts += [_sentence(f"Note: {note}.") for note in explanation.notes]
    if explanation.server is None:
        parts += [*_overview(explanation), *_unserved(explanation), *_types(explanation)]
    else:
        parts += list(_in_depth(explanation.servers[0], explanation))
    if explanation.repair is not None:
        parts += list(_repair(explanation.repair))
    parts += list(_targets(explanation.targets))
    parts.append(_proof(explanation))
    return Group(*parts)


def _sentence(text: str) -> Text:
    """Return a paragraph."""
    return Text(_wrapped(text, "") + "\n")


def _list(title: str, lines: Iterable[str]) -> Iterator[Text]:
    """Yield a title and its lines; nothing where there are none."""
    items = [_wrapped(line, "  ") for line in lines]
    if items:
        yield Text(title, style="bold")
        yield Text("\n".join(items) + "\n")


def _wrapped(text: str, indent: str) -> str:
    """Return text in lines; characters that steer a terminal are shown as a question mark."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return textwrap.fill(plain, WIDTH, initial_indent=indent, subsequent_indent=indent + "  " * bool(indent))


def _headline(explanation: Explanation) -> Text:
    plan = explanation.plan
    servers = len({*plan.allocations} | {item.server for item in plan.unserved})
    mode = "limited" if any(item.limit is not None for item in plan.capacity) else "unlimited"
    text = Text(f"{plan.total_cost_cents_per_h:,.2f} cents/h", style="bold")
    served = f"{servers - len(plan.unserved)} of {servers} servers served in full"
    text.append(f"   {mode} plan, {served}\n", style="default")
    return text


# --- all servers -----------------------------------------------------------------------------------------


def _overview(explanation: Explanation) -> Iterator[RenderableType]:
    table = make_table(
        "Why this accelerator",
        [
            ("server", False),
            ("runs on", False),
            ("what binds", False),
            ("room for\nreq/min", True),
            ("runner-up", False),
            ("would cost\ncents/h", True),
        ],
    )
    order = sorted(explanation.servers, key=lambda item: (item.priority, item.server))
    for item in order:
        runs_on = [
            (f"{pool.num_replicas:,} x {pool.accelerator}", _binding(pool.binding)) for pool in item.pools
        ]
        others = _pools(item.runner_up)
        for i in range(max(len(runs_on), len(others), 1)):
            pool, binding = runs_on[i] if i < len(runs_on) else ("", "")
            table.add_row(
                item.server if i == 0 else "",
                pool if item.pools else _why_none(item),
                binding,
                _room(item) if i == 0 else "",
                others[i] if i < len(others) else "",
                _price(item.runner_up) if i == 0 else "",
            )
    yield table
    yield from _list(
        "Who is served more or less with the runner-up",
        (f"{item.server}: {_service(item.runner_up.effect)}" for item in order if _moves(item.runner_up)),
    )


def _moves(alternative: Alternative | None) -> TypeGuard[Alternative]:
    """Return whether there is an alternative that changes who is served."""
    return alternative is not None and bool(alternative.effect.service)


def _why_none(item: ServerExplanation) -> str:
    return "not served" if item.served_fraction < 1 else "idle"


def _binding(limits: Sequence[Binding]) -> str:
    return ", ".join(_LIMITS[item.limit] for item in limits) or "-"


def _room(item: ServerExplanation) -> str:
    if item.served_fraction < 1:
        return f"{_share(item.served_fraction)} served"
    if item.headroom_rpm is None or item.headroom_share is None:
        return "-"
    return f"{item.headroom_rpm:,.4g} ({item.headroom_share:.1%})"


def _pools(alternative: Alternative | None) -> list[str]:
    if alternative is None:
        return ["-"]
    return [f"{pool.num_replicas:,} x {pool.accelerator}" for pool in alternative.pools] or ["none"]


def _price(alternative: Alternative | None) -> str:
    return "-" if alternative is None else _cost(alternative.effect)


def _cost(effect: Effect) -> str:
    """Return what an effect costs, or, where service changes, what is served: no price says that."""
    if effect.service:
        return f"serves {effect.serves}" if effect.serves != "same" else "serves others"
    return _prices(effect)


def _prices(effect: Effect) -> str:
    """Return the change of the cost, with that of the value where one rises and the other does not."""
    cost, value = effect.cost_change_cents_per_h, effect.value_change_cents_per_h
    same_sign = (cost > 0) == (value > 0) and (cost < 0) == (value < 0)
    return _money(cost) if same_sign else f"{_money(cost)} (value {_money(value)})"


def _changes(effect: Effect) -> bool:
    moneys = (effect.cost_change_cents_per_h, effect.value_change_cents_per_h)
    return any(moneys) or bool(effect.service)


def _money(cents: float) -> str:
    return "0" if cents == 0 else f"{cents:+,.2f}"


def _share(fraction: float) -> str:
    return "<1%" if 0 < fraction < 0.01 else f"{fraction:.0%}"


# --- accelerator types -----------------------------------------------------------------------------------


def _types(explanation: Explanation) -> Iterator[RenderableType]:
    limited = any(item.limit is not None for item in explanation.types)
    if not limited:
        table = make_table("Units", [("type", False), ("used", True)])
        for item in explanation.types:
            table.add_row(item.type, f"{item.used:,}")
        yield table
        return
    table = make_table(
        "What a unit is worth",
        [
            ("type", False),
            ("used", True),
            ("exist", True),
            ("left", True),
            ("one more\ncents/h", True),
            ("one fewer\ncents/h", True),
            ("Lagrangian\nprice", True),
        ],
    )
    for item in explanation.types:
        table.add_row(
            item.type,
            f"{item.used:,}",
            f"{item.limit or 0:,}",
            f"{item.left or 0:,}",
            "-" if item.one_more is None else _cost(item.one_more),
            "none to take" if item.one_fewer is None else _cost(item.one_fewer),
            "-" if item.lagrangian_price_cents_per_h is None else f"{item.lagrangian_price_cents_per_h:,.2f}",
        )
    yield table
    if any(item.lagrangian_price_cents_per_h for item in explanation.types):
        yield _sentence(
            "Lagrangian price: what a small part of a unit more would save of the objective, if replicas "
            "could be split, in cents/h per unit."
        )
    yield from _service_of_units(explanation.types)


def _service_of_units(types: Sequence[TypeExplanation]) -> Iterator[Text]:
    lines = [
        f"{what} {item.type}: {_service(effect)}"
        for item in types
        for what, effect in (("+1", item.one_more), ("-1", item.one_fewer))
        if effect is not None and effect.service
    ]
    yield from _list("Who is served more or less then", lines)


def _unserved(explanation: Explanation) -> Iterator[Text]:
    order = sorted(explanation.plan.unserved, key=lambda item: (item.priority, item.server))
    lines = (f"{item.server} ({_share(item.served_fraction)} served): {item.detail}" for item in order)
    yield from _list("Not served in full", lines)


def _service(effect: Effect, most: int = 2) -> str:
    """Say who is served more or less."""
    parts = [
        f"{item.server} {_share(item.served_before)} -> {_share(item.served_after)} "
        f"({item.load_change_rpm:+,.4g} req/min)"
        for item in effect.service[:most]
    ]
    more = len(effect.service) - most
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


# --- one server ------------------------------------------------------------------------------------------


def _in_depth(item: ServerExplanation, explanation: Explanation) -> Iterator[RenderableType]:
    yield _sentence(
        f"{item.server}: {item.model} for class {item.service_class}, priority {item.priority}, "
        f"{item.load_rpm:,.6g} requests/min"
    )
    yield from (_sentence(text) for text in _verdict(item, explanation))
    if item.options:
        yield _candidates(item)
    if item.rejections:
        yield _rejections(item)


def _verdict(item: ServerExplanation, explanation: Explanation) -> Iterator[str]:
    if not item.pools and item.served_fraction == 1:
        yield "It is idle and needs no replicas."
        return
    for unserved in explanation.plan.unserved:
        if unserved.server == item.server:
            yield f"{_share(unserved.served_fraction)} of its load is served: {unserved.detail}."
    for pool in item.pools:
        yield (
            f"It runs on {pool.num_replicas:,} x {pool.accelerator} with batch {pool.max_batch} for "
            f"{pool.cost_cents_per_h:,.2f} cents/h. "
            + (f"What binds: {_gains(pool.binding)}." if pool.binding else "It has no load.")
        )
    if item.headroom_rpm is not None and item.headroom_rpm >= 0:
        yield (
            f"It can still take {item.headroom_rpm:,.4g} requests/min ({item.headroom_share:.1%}) before "
            "another replica is needed."
        )
    if item.runner_up is not None:
        yield _runner_up(item.runner_up)


def _gains(limits: Sequence[Binding]) -> str:
    steps = {"itl": "1 % more", "ttft": "1 % more", "throughput": "without it", "batch": "one request more"}
    steps["memory"] = "room for one request more"
    return "; ".join(
        _LIMITS[item.limit]
        + (
            f" ({steps[item.limit]} raises the largest load by {item.rate_gain:.2%})"
            if item.rate_gain
            else ""
        )
        for item in limits
    )


def _runner_up(alternative: Alternative) -> str:
    effect = alternative.effect
    where = ", ".join(f"{pool.num_replicas:,} x {pool.accelerator}" for pool in alternative.pools)
    start = f"Runner-up: {where}; the whole plan" if where else "No other accelerator takes it; the plan"
    if effect.service:
        return f"{start} would serve others: {_service(effect)}."
    return f"{start} would cost {_more(effect)}."


def _more(effect: Effect) -> str:
    """Return a price as words."""
    text = _prices(effect)
    if text[0] not in "+-" or "value" in text:
        return "the same" if text == "0" else f"{text} cents/h"
    return f"{text[1:]} cents/h {'more' if text[0] == '+' else 'less'}"


def _candidates(item: ServerExplanation) -> Table:
    table = make_table(
        "Where it can run, and what the whole plan would cost more with it there",
        [
            ("accelerator", False),
            ("replicas", True),
            ("batch", True),
            ("units", True),
            ("own cost\ncents/h", True),
            ("what binds", False),
            ("whole plan\ncents/h", True),
        ],
    )
    chosen = {pool.accelerator for pool in item.pools}
    for option in item.options:
        table.add_row(
            option.accelerator + (" *" if option.accelerator in chosen else ""),
            f"{option.num_replicas:,}",
            str(option.max_batch),
            f"{option.units:,} {option.type}",
            f"{option.cost_cents_per_h:,.2f}",
            _binding(option.binding),
            _forced(option),
        )
    return table


def _forced(option: Option) -> str:
    if option.forced is None:
        return "-"
    if not option.forced.pools:
        return "not served there"
    return _cost(option.forced.effect)


def _rejections(item: ServerExplanation) -> Table:
    table = make_table(
        "Where it cannot run",
        [("accelerator", False), ("misses by", True), ("reason", False), ("detail", False)],
    )
    for pair in item.rejections:
        miss = "-" if pair.factor is None else f"x {pair.factor:,.3g}"
        table.add_row(pair.accelerator, miss, pair.reason, pair.detail)
    return table


# --- repair ----------------------------------------------------------------------------------------------


def _repair(repair: Repair) -> Iterator[RenderableType]:
    units = [("cheapest plan", repair.cheapest), ("fewest units", repair.fewest)]
    units += [("one type", item) for item in repair.of_one_type]
    lines = [f"{title}: {_units(item)}" for title, item in units if item is not None]
    lines += [
        f"one target: {item.service_class}/{item.model} {item.metric.upper()} {item.target_ms:g} -> "
        f"{item.needed_ms:.10g} ms; the plan then costs {_more(item.effect)}"
        for item in repair.relaxations
    ]
    if not repair.relaxations:
        lines.append("one target: none of a server that is not served is enough alone")
    if repair.common_factor is not None:
        lines.append(f"their latency targets together: {repair.common_factor:.10g} times as long")
    lines += [f"no number of units serves {item.server}: {item.detail}" for item in repair.beyond_units]
    yield from _list("What would serve everything; each line is an alternative", lines)


def _units(repair: UnitRepair) -> str:
    if not repair.added:
        return "none; the solver stopped before it used those that exist, give it more time"
    added = " ".join(f"+{count:,} {kind}" for kind, count in repair.added.items())
    proof = "" if repair.proved else " (not proved to be the least)"
    change = _money(repair.effect.cost_change_cents_per_h)
    return f"{added}; the plan then costs {repair.total_cost_cents_per_h:,.2f} cents/h ({change}){proof}"


# --- targets ---------------------------------------------------------------------------------------------


def _targets(targets: Sequence[TargetPrice]) -> Iterator[RenderableType]:
    changing = [item for item in targets if _changes(item.effect)]
    if changing:
        table = make_table(
            "What 10 % more of a target changes",
            [
                ("class", False),
                ("model", False),
                ("target", False),
                ("ms", True),
                ("relaxed\nms", True),
                ("cents/h", True),
            ],
        )
        for item in changing:
            table.add_row(
                item.service_class,
                item.model,
                item.metric.upper(),
                f"{item.target_ms:g}",
                f"{item.relaxed_ms:g}",
                _cost(item.effect),
            )
        yield table
    rest = len(targets) - len(changing)
    if rest:
        yield _sentence(_rest(rest, more=bool(changing)))


def _rest(count: int, *, more: bool) -> str:
    """Say that some targets cost nothing, beside others that do or alone."""
    which = {True: "the other", False: "any of the" if count > 1 else "the"}[more]
    targets = "latency target" if count == 1 else f"{count} latency targets"
    return f"10 % more of {which} {targets} changes nothing."


def _proof(explanation: Explanation) -> Text:
    """Say how the numbers were found."""
    found: list[float | None] = [item.effect.open_cents_per_h for item in explanation.targets]
    found += [
        item.runner_up.effect.open_cents_per_h for item in explanation.servers if item.runner_up is not None
    ]
    found += [
        effect.open_cents_per_h
        for item in explanation.types
        for effect in (item.one_more, item.one_fewer)
        if effect is not None
    ]
    if not found:
        return Text("")
    if None in found:
        return _sentence("Some plans were stopped early; --json says of each number how far it is proved.")
    most = max(value for value in found if value is not None)
    if most == 0:
        return _sentence("Every number is the difference of two plans that are proved optimal.")
    return _sentence(
        f"Not every plan is proved optimal: a number may be off by up to {most:,.2f} cents/h of the value."
    )
