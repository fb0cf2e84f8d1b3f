"""The tables of prefill and decode pools in reports and explanations, and why a plan has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.quantities import quantity
from optimizer.render.explanation_text import effect_text
from optimizer.render.money import Money
from optimizer.section import RPM, Column, Section, group_name, group_rows, name, sentence, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optimizer.features.disaggregation.uses import RoleUse, SizedWay
    from optimizer.plan import Plan
    from optimizer.studies.explanation.explanation_document import Explanation

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
    if len(way.by_role) > 1:
        prefill, decode = way.by_role
        replicas = f"{prefill:,} prefill + {decode:,} decode replicas ({replicas})"
    return f"{replicas} for {money.text(way.cost_cents_per_h)}"


# --- explanations ----------------------------------------------------------------------------------------

_HANDOVERS = {"linkBandwidth": "links twice as fast", "fixedMs": "half of handover.fixedMs"}


def role_value_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the table of the loads and links of pools, and a sentence on what faster handovers cost."""
    columns = (
        name("server", "server"),
        Column("both carry", "max_arrival_rate_rpm", RPM, quantity),
        words("limited by", "limited_by"),
        Column("prefill + 1", lambda item: item.one_more_rpm["prefill"], RPM, quantity),
        Column("decode + 1", lambda item: item.one_more_rpm["decode"], RPM, quantity),
        Column("link", "link_gbps", "GB/s", quantity),
        Column("needed", "least_link_gbps", "GB/s", quantity),
    )
    if explanation.disaggregation:
        yield table("What replicas and links are worth", columns, explanation.disaggregation, "pools")
    effects = [
        f"{_HANDOVERS[item.field]}: {effect_text(item.effect, money, explanation.plan)}"
        for item in explanation.handovers
    ]
    if effects:
        yield sentence(f"Change of the cost [{money.unit}]: {'; '.join(effects)}.")
