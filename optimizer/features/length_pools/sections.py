"""The table of pools by length in reports: router rules, and the cost of one pool or of several."""

from collections.abc import Iterator

from optimizer.features.length_pools.uses import LengthUse, SizedPool
from optimizer.plan import Plan
from optimizer.quantities import counted, quantity
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, group_name, group_rows, name, table

_REASONS = {
    "needed": "no accelerator meets the targets of all shapes together",
    "required": "several pools are required",
    "limits": "limits on cards or costs of changes decide",
    "one_replica_more": "the pools need no more than one pool, but each number of replicas is rounded up",
    "more_replicas": "the pools together need more replicas",
    "unattainable": "in no division do all pools meet their targets",
    "unserved": "not served",
}


def length_section(plan: Plan) -> Section:
    """Return the table of pools by length."""
    money = Money.of(plan)
    columns = (
        group_name("server"),
        name("shapes", lambda row: ", ".join(row.item.shapes)),
        Column("prompts below", lambda row: row.item.below_tokens, "tokens", ",d", none="all others"),
        Column("load", lambda row: row.item.arrival_rate_rpm, RPM, quantity, rank=1),
        Column("replicas", lambda row: row.item.num_replicas, form=",d"),
        money.column("cost", lambda row: row.item.cost_cents_per_h),
    )
    rows = group_rows((server, use.pools) for server, use in plan.length_pools.items())
    notes = [note for server, use in plan.length_pools.items() for note in _notes(server, use, money)]
    return table("Pools by length", columns, rows, "lengths", notes=notes)


def _notes(server: str, use: LengthUse, money: Money) -> Iterator[str]:
    """Yield sentences on the costs of one pool and of several, and why the plan has one or the other."""
    replicas = sum(pool.num_replicas for pool in use.pools)
    together, split = _sized(use, money)
    why = _REASONS.get(use.reason)
    if len(use.pools) > 1:
        text = f"{server}: {counted(replicas, 'replica')} by length for {money.text(use.cost_cents_per_h)}"
        yield f"{text}; {together}{f' ({why})' if why and use.reason != 'needed' else ''}."
        return
    what = why if use.reason == "unserved" else "one pool"
    if use.by_length:
        yield f"{server}: {what}; {split}{f' ({why})' if why and what != why else ''}."
    else:
        yield f"{server}: {what}; {_REASONS['unattainable']}."


def _sized(use: LengthUse, money: Money) -> tuple[str, str]:
    one, cost = use.together, use.cost_cents_per_h
    together = _REASONS["needed"]
    if one is not None:
        saved = one.cost_cents_per_h - cost
        compared = f"{money.distance(abs(saved))} {money.unit} {'more' if saved > 0 else 'less'}"
        difference = f", {compared}" if saved else ", the same"
        together = f"one pool would take {_text([one], money)}{difference}"
    split = f"the cheapest division would take {_text(use.by_length, money)}"
    return together, split


def _text(pools: tuple[SizedPool, ...] | list[SizedPool], money: Money) -> str:
    """Return pools as text: ``1 × H100 for chat and 2 × H100 for docs: 1,200 cents/h``."""
    parts = [
        f"{pool.num_replicas:,} × {pool.accelerator}"
        + (f" for {', '.join(pool.shapes)}" if len(pools) > 1 else "")
        for pool in pools
    ]
    return f"{' and '.join(parts)}: {money.text(sum(pool.cost_cents_per_h for pool in pools))}"
