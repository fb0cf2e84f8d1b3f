"""Sections of reserves, price tiers, rented services and the cost of tokens."""

import math
from collections.abc import Iterator, Mapping, Sequence

from optimizer.candidates.reserve import MAX_FOR_BOTH
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL, ReplicaPurposes
from optimizer.plan.replica_counts import WANTED_UTILIZATION
from optimizer.quantities import counted, quantity, share_text
from optimizer.render.explanation_text import effect_value, named_service_changes
from optimizer.render.money import Money
from optimizer.render.version_sections import version_sections
from optimizer.section import RPM, Column, Section, name, table
from optimizer.studies.explanation.explanation_document import Explanation


def robust_sections(plan: Plan, costs: Mapping[str, float]) -> Iterator[Section]:
    """Yield reserves, tiers and rented services of a plan, and the cost of tokens.

    Args:
        plan: the plan.
        costs: cost per million tokens of each server [cents].
    """
    if plan.deadlines:
        yield _deadlines(plan)
    yield from version_sections(plan)
    if plan.caches:
        yield _caches(plan)
    if plan.reserves:
        yield _reserves(plan)
    if plan.replica_counts:
        yield replica_section(plan)
    if plan.tiers:
        yield _tiers(plan)
    if plan.rented:
        yield _rented(plan)
    yield _tokens(plan, costs)


def _deadlines(plan: Plan) -> Section:
    columns = (
        name("server", "server"),
        Column("requests", "requests", form=quantity),
        Column("deadline", "hours", "h", quantity),
        Column("capacity", "capacity_rpm", RPM, quantity, rank=1),
        Column("finishes", "finishes_h", "h", quantity, none="never"),
        Column("done by then", lambda item: item.done_in_time / item.requests, form=share_text),
    )
    late = [item.server for item in plan.deadlines if not item.in_time]
    notes = [f"Not done by their deadlines: {', '.join(late)}."] if late else []
    return table("Offline work", columns, plan.deadlines, "deadlines", notes=notes)


def _caches(plan: Plan) -> Section:
    columns = (
        name("server", "server"),
        Column("hit rate", "hit_rate", form=share_text),
        Column("hits", "hits_rpm", RPM, quantity, rank=1),
        Column("misses", "misses_rpm", RPM, quantity),
    )
    note = "Loads and capacities are those of the misses; targets on percentiles and shares all requests'."
    return table("Caches", columns, plan.caches, "caches", notes=[note])


def _reserves(plan: Plan) -> Section:
    money = Money.of(plan)
    columns = (
        name("server", "server"),
        Column("headroom", "headroom_wanted", form=".0%"),
        Column("spares", "spare_replicas", form=",d"),
        Column("availability", "availability_target", form=".4g", none="none"),
        name("has it", lambda item: "yes" if item.has_reserve else "no"),
        money.column("cost", lambda item: item.cost_cents_per_h),
    )
    note = f"Reserves cost {money.text(sum(item.cost_cents_per_h for item in plan.reserves))}"
    note += f"; {plan.reserve_text}" if plan.lacks_reserve else ""
    return table("Reserves", columns, plan.reserves, "reserves", notes=[f"{note}."])


def replica_section(plan: Plan) -> Section:
    """Return the replicas of servers by purpose, with a sentence for each."""
    counts, rollouts = plan.replica_counts, plan.rollouts

    def cards(server: str) -> str:
        used = rollouts[server].cards if server in rollouts else {}
        return ", ".join(f"{n:,} {kind}" for kind, n in used.items())

    columns = (
        name("server", str),
        Column("replicas", lambda server: counts[server].replicas, form=",d"),
        Column("for its load", lambda server: counts[server].load, form=",d"),
        Column("headroom", lambda server: counts[server].headroom, form=",d", rank=2),
        Column("spare", lambda server: counts[server].spares, form=",d"),
        Column("for availability", lambda server: counts[server].availability, form=",d"),
        Column("more in a roll-out", lambda server: counts[server].rollout, form=",d"),
        name("on cards", cards, rank=1),
    )
    notes = [text for server, item in counts.items() for text in replica_text(server, item)]
    return table("Replicas by purpose", columns, [*counts], "rollouts", notes=notes)


def replica_text(server: str, item: ReplicaPurposes) -> Iterator[str]:
    """Yield the replicas of a server by purpose, and its utilisation if it has an availability target."""
    target = "" if item.availability_target is None else f"{100 * item.availability_target:.8g}%"
    promise = f"{target} availability"
    purposes = {"for headroom": item.headroom, "spare": item.spares, f"for {promise}": item.availability}
    parts = [f"{n:,} {what}" for what, n in purposes.items() if n]
    text = f"{server}: {counted(item.replicas, 'replica')}"
    if parts:
        text += f", of which {_listed(parts)}"
    yield f"{text}; {item.rollout:,} more while it rolls out." if item.rollout else f"{text}."
    if item.full_utilization is not None and item.utilization is not None:
        pool = "replica is" if item.replicas == 1 else f"{item.replicas:,} replicas are"
        text = f"{server}: at {promise} the {pool} {share_text(item.utilization)} utilised"
        wanted = share_text(WANTED_UTILIZATION)
        if item.both_from is not None:
            both = counted(item.both_from, "replica")
            yield f"{text}; both {target} and {wanted} are met from {both} on."
        elif item.full_utilization < WANTED_UTILIZATION:
            full = share_text(item.full_utilization)
            if full == wanted:
                full = f"{math.floor(1000 * item.full_utilization) / 10:.1f}%"
            why = f"a replica at its maximum rate is {full} utilised"
            yield f"{text}; {wanted} is out of reach, because {why}."
        else:
            yield f"{text}; no number of replicas up to {MAX_FOR_BOTH:,} reaches both {target} and {wanted}."


def _listed(parts: Sequence[str]) -> str:
    """Return parts joined by commas, with *and* before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _tiers(plan: Plan) -> Section:
    money = Money.of(plan)
    columns = (
        name("units", "name"),
        Column("used", "used", form=",d"),
        money.column("cost", lambda use: use.cost_cents_per_h),
        money.column("list price", lambda use: use.cost_cents_per_h - use.difference_cents_per_h),
        money.column("tiers", lambda use: use.difference_cents_per_h),
    )
    return table("Price tiers", columns, plan.tiers, "tiers")


def _rented(plan: Plan) -> Section:
    columns = (
        name("server", "server"),
        Column("load", "arrival_rate_rpm", RPM, quantity),
        Column("TTFT", "ttft_ms", "ms", quantity),
        Column("ITL", "itl_ms", "ms", quantity),
        Money.of(plan).column("cost", lambda item: item.cost_cents_per_h),
    )
    return table("Rented", columns, plan.rented)


def _tokens(plan: Plan, costs: Mapping[str, float]) -> Section:
    """Return the cost of tokens; shown by default with reserves, limits, tiers or rented services."""
    money, rented = Money.of(plan), {item.server for item in plan.rented}

    def placed(server: str) -> str:
        pools = [pool.placed_on for pool in plan.pools_of(server)]
        return EXTERNAL if server in rented else " + ".join(pools)

    columns = (
        name("server", str),
        name("placed on", placed),
        Column("cost per million tokens", lambda item: money.number(costs[item]), money.unit[:-2], ",.2f"),
    )
    title = "Cost per million input and output tokens"
    shown = bool(plan.rented or plan.reserves or plan.tiers or plan.limits)
    return table(title, columns, sorted(costs), "tokens", on_request=not shown, may_be_empty=True)


def wish_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the cost of reserves, limits, prices and preferences, if there are any."""
    if explanation.wishes:
        columns = (
            name("option", "option"),
            Column(
                "without it", lambda item: effect_value(item.without, money, explanation.plan), money.unit
            ),
        )
        yield table("What options cost", columns, explanation.wishes, "options")
        named = ((item.option, item.without) for item in explanation.wishes)
        yield from named_service_changes(explanation.plan, "without an option", named)
