"""The table of prefill and decode pools in reports, and why a plan has them."""

from collections.abc import Iterator

from optimizer.features.disaggregation.uses import RoleUse, SizedWay
from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.render.money import Money
from optimizer.section import Column, Section, group_name, group_rows, name, table

_REASONS = {
    "itl": "because ITL limits replicas that do both",
    "ttft": "because TTFT limits replicas that do both",
    "capacity": "because replicas that do both reach their capacity",
    "required": "as required",
    "limits": "limits on cards or costs of changes decide",
    "cheaper": "pools cost no less",
    "unattainable": "no prefill and decode pools meet the targets",
    "unserved": "not served",
}


def role_section(plan: Plan) -> Section:
    """Return the table of prefill and decode pools."""
    money = Money.of(plan)
    columns = (
        group_name("server"),
        name("role", lambda row: row.item.role),
        Column("replicas", lambda row: row.item.num_replicas, form=",d"),
        money.column("cost", lambda row: row.item.cost_cents_per_h),
    )
    rows = group_rows((server, use.pools) for server, use in plan.disaggregation.items())
    notes = [note for server, use in plan.disaggregation.items() for note in _notes(server, use, money)]
    return table("Prefill and decode pools", columns, rows, "roles", notes=notes)


def _notes(server: str, use: RoleUse, money: Money) -> Iterator[str]:
    """Yield sentences on both costs, why the plan has one or the other, and the parts of the TTFT."""
    one = "replicas that do both cannot meet the targets"
    if use.aggregated_alternative is not None:
        one = f"replicas that do both would be {_text(use.aggregated_alternative, money)}"
    why = _REASONS.get(use.reason)
    if not use.pools:
        other = use.disaggregated_alternative
        two = f"; pools would be {_text(other, money)}" if other and use.reason != "unattainable" else ""
        what = "not served" if use.reason == "unserved" else f"replicas do both ({why})"
        yield f"{server}: {what}{two}."
        return
    count = " + ".join(f"{pool.num_replicas:,} {pool.role}" for pool in use.pools)
    text = f"{server}: {count} replicas for {money.text(use.cost_cents_per_h)}; {one}"
    yield f"{text}{f' ({why})' if why else ''}."
    parts = use.ttft_parts
    if parts is not None:
        named = {
            "wait": parts.prefill_wait_ms,
            "prefill and transfer": parts.prefill_and_transfer_ms,
            "handover": parts.handover_ms,
            "first step": parts.first_step_ms,
        }
        total = quantity(sum(named.values()))
        yield (
            f"{server}: mean TTFT {total} ms = "
            + " + ".join(f"{label} {quantity(value)}" for label, value in named.items())
            + "."
        )


def _text(way: SizedWay, money: Money) -> str:
    replicas = " + ".join(f"{count:,} × {accelerator}" for accelerator, count in way.replicas.items())
    return f"{replicas} for {money.text(way.cost_cents_per_h)}"
