"""The tables of reserves, and of replicas by purpose, in reports."""

import math
from collections.abc import Iterator, Sequence

from optimizer.features.reserves.offers import MAX_FOR_BOTH
from optimizer.features.reserves.purposes import WANTED_UTILIZATION
from optimizer.features.reserves.uses import ReplicaPurposes
from optimizer.plan import Plan
from optimizer.quantities import counted, share_text
from optimizer.render.money import Money
from optimizer.section import Column, Section, name, table


def reserve_sections(plan: Plan) -> Iterator[Section]:
    """Yield the tables of a plan's reserves, and of replicas by purpose, if there are any."""
    if plan.reserves:
        yield _reserves(plan)
    if plan.replica_counts:
        yield replica_section(plan)


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
    """Return the table of replicas by purpose, with a sentence for each server."""
    counts, rollouts = plan.replica_counts, plan.rollouts

    def cards(server: str) -> str:
        used = rollouts[server].cards if server in rollouts else {}
        return ", ".join(f"{n:,} {type_name}" for type_name, n in used.items())

    columns = (
        name("server", str),
        Column("replicas", lambda server: counts[server].replicas, form=",d"),
        Column("load", lambda server: counts[server].load, form=",d"),
        Column("headroom", lambda server: counts[server].headroom, form=",d", rank=2),
        Column("spare", lambda server: counts[server].spares, form=",d"),
        Column("for availability", lambda server: counts[server].availability, form=",d"),
        Column("roll-out", lambda server: counts[server].rollout, form=",d"),
        name("on cards", cards, rank=1),
    )
    notes = [text for server, item in counts.items() for text in replica_text(server, item)]
    return table("Replicas by purpose", columns, [*counts], "rollouts", notes=notes)


def replica_text(server: str, item: ReplicaPurposes) -> Iterator[str]:
    """Yield sentences on a server's replicas by purpose, and on its utilisation for availability targets."""
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
    """Join texts by commas, with *and* before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
