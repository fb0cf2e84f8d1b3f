"""Tables of pages: ``python tests/tools/scenario_tables.py`` writes them into the pages."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import multi_model_page  # noqa: E402
import serving_fleet_page  # noqa: E402
from doc_pages import DOCS, ROOT, head_of, read_page, with_tables  # noqa: E402

from optimizer import Plan, System, load_system, solve  # noqa: E402
from optimizer.features.disaggregation.uses import SizedWay  # noqa: E402

LIMITS = (0.0, 0.01, 0.02, 0.04, 1.0)


def _without(system: System, field: str) -> System:
    """Return a system whose servers lack a field."""
    document = system.to_spec().model_dump(mode="json", by_alias=True)
    for server in document["servers"]:
        server.pop(field, None)
    return load_system(document)


def _pools(plan: Plan, *servers: str) -> str:
    pools = chain(*(plan.allocations[name] for name in servers or sorted(plan.allocations)))
    return " + ".join(f"{pool.num_replicas} × {pool.accelerator}" for pool in pools) or "-"


def limits_on_quality() -> list[str]:
    rows = ["| maxLoss | cents/h | small model | large model | saving |", "|---|---|---|---|---|"]
    system = load_system(ROOT / "specs" / "routes.yaml")
    for limit in LIMITS:
        route = system.routes["chat"].model_copy(update={"max_loss": limit})
        plan = solve(system.with_items(route))
        saving = 100 * (plan.routes["chat"].saving or 0.0)
        pools = f"{_pools(plan, 'chat-8b')} | {_pools(plan, 'chat-70b')}"
        rows.append(f"| {limit:.0%} | {plan.total_cost_cents_per_h:,.0f} | {pools} | {saving:.1f}% |")
    return rows


def saved_by_the_queue() -> list[str]:
    system = load_system(ROOT / "specs" / "shared-queue.yaml")
    rows = ["| unlimited plan | replicas | cents/h |", "|---|---|---|"]
    for name, mine in (("each server alone", _without(system, "sharedQueue")), ("shared queue", system)):
        plan = solve(mine, unlimited=True)
        rows.append(f"| {name} | {_pools(plan)} | {plan.total_cost_cents_per_h:.0f} |")
    return rows


def scarce_queue() -> list[str]:
    names = ("premium", "standard", "free")
    rows = [
        f"| H100 | replicas | {' | '.join(names)} | TTFT of premium |",
        "|---|---|---|---|---|---|",
    ]
    for cards in (3, 2):
        system = load_system(ROOT / "specs" / "shared-queue.yaml").with_capacity({"H100": cards})
        plan = solve(system)
        share = {item.server: item.served_fraction for item in plan.unserved}
        served = " | ".join(f"{share.get(name, 1.0):.0%}" for name in names)
        ttft = plan.shared_queues["chat"].members["premium"].ttft_ms
        rows.append(f"| {cards} | {_pools(plan)} | {served} | {ttft:.0f} ms |")
    return rows


def separate_and_shared_cards() -> list[str]:
    system = load_system(ROOT / "specs" / "shared-cards.yaml")
    whole, plan = solve(_without(system, "sharedCard")), solve(system)
    own = " + ".join(f"{pools[0].num_replicas} × {name}" for name, pools in whole.allocations.items())
    shared = "; ".join(
        f"{use.num_cards} × (" + ", ".join(f"{item.per_card} {item.server}" for item in use.servers) + ")"
        for use in plan.shared_cards
    )
    return [
        "| | cards | cents/h |",
        "|---|---|---|",
        f"| separate cards | {own} | {whole.total_cost_cents_per_h:.0f} |",
        f"| shared cards | {shared} | {plan.total_cost_cents_per_h:.0f} |",
    ]


def servers_on_shared_cards() -> list[str]:
    rows = [
        "| server | on each card | load on all | maximum load | mean | p99 | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    plan = solve(load_system(ROOT / "specs" / "shared-cards.yaml"))
    for item in chain(*(use.servers for use in plan.shared_cards)):
        share = f"{item.share:g}, {item.memory_gb:g} GB" if item.share else f"{item.memory_gb:g} GB"
        part = f"{item.per_card} × ({share})" if item.share else f"one turn, {share}"
        (late,) = [x for x in item.targets if x.measure.startswith("p99")]
        rates = [item.arrival_rate_rpm / 60, item.max_arrival_rate_rpm / 60]
        load, most = (f"{rate:,.0f}/s" for rate in rates)
        times = f"{item.ttft_ms:.0f} ms | {late.value:.0f} ms | {late.limit:.0f} ms"
        rows.append(f"| {item.server} | {part} | {load} | {most} | {times} |")
    return rows


def pools_by_target() -> list[str]:
    rows = [
        "| p95 TTFT of chat | pools | cards | one pool |",
        "|---|---|---|---|",
    ]
    system = load_system(ROOT / "specs" / "length-pools.yaml")
    (owner,), (target,) = system.spec.service_classes, system.spec.service_classes[0].model_targets
    for seconds in (0.3, 0.5, 1, 3):
        chat = target.shapes["chat"].model_copy(update={"ttft_ms": 1000 * seconds})
        shapes = {**target.shapes, "chat": chat}
        own = target.model_copy(update={"shapes": shapes})
        plan = solve(system.with_items(owner.model_copy(update={"model_targets": (own,)})))
        use = plan.length_pools["assistant"]
        pools = " + ".join(f"{pool.num_replicas} for {', '.join(pool.shapes)}" for pool in use.pools)
        assert use.together is not None
        cards = sum(pool.num_replicas for pool in use.pools)
        rows.append(f"| {seconds} s | {pools} | {cards} | {use.together.num_replicas} |")
    return rows


def _serving_fleet(first: str) -> list[str]:
    head = head_of(read_page("scenarios/serving-fleet.md"), first)
    return [*head, *(f"| {' | '.join(row)} |" for row in serving_fleet_page.ROWS[first]())]


def roles_by_target() -> list[str]:
    rows = [
        "| p95 ITL | prefill + decode | USD/h | replicas that do both | USD/h |",
        "|---|---|---|---|---|",
    ]
    system = load_system(ROOT / "specs" / "disaggregated")
    owner = system.service_classes["smooth"]
    (target,) = owner.model_targets
    for limit in (12, 14, 20, 40):
        own = target.model_copy(update={"itl_ms": float(limit)})
        plan = solve(system.with_items(owner.model_copy(update={"model_targets": (own,)})))
        use = plan.disaggregation["assistant"]
        pools = " + ".join(str(pool.num_replicas) for pool in use.pools) or "none"
        cost = f"{use.cost_cents_per_h / 100:.2f}" if use.pools else ""
        one = use.aggregated_alternative
        rest = "none meet it | " if one is None else f"{_replicas(one)} | {one.cost_cents_per_h / 100:.2f}"
        rows.append(f"| {limit} ms | {pools} | {cost} | {rest} |")
    return rows


def _replicas(way: SizedWay) -> str:
    return " + ".join(f"{count} × {name}" for name, count in way.replicas.items())


PAGES: Mapping[str, tuple[Callable[[], list[str]], ...]] = {
    "scenarios/routes.md": (limits_on_quality,),
    "scenarios/shared-queue.md": (saved_by_the_queue, scarce_queue),
    "scenarios/length-pools.md": (pools_by_target,),
    "scenarios/disaggregated.md": (roles_by_target,),
    "scenarios/multi-model-service.md": multi_model_page.TABLES,
    "scenarios/serving-fleet.md": tuple(partial(_serving_fleet, first) for first in serving_fleet_page.ROWS),
    "policies.md": (separate_and_shared_cards, servers_on_shared_cards),
}
"""The tables of each page."""


def written(name: str) -> str:
    return with_tables(read_page(name), [make() for make in PAGES[name]])


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(written(page), encoding="utf-8")
