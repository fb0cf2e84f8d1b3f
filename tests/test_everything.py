"""All five systems of the samples are planned in one document."""

from functools import cache

import pytest
from doc_pages import one_line, read_page
from everything import CARDS, EVERYTHING, SPECS, SYSTEMS, files, parts

from optimizer import Plan, System, load_system, make_report, render_report, solve, verify
from optimizer.simulation.replicas import Effort
from optimizer.studies.explanation.explain import explain
from optimizer.studies.overview import describe
from optimizer.studies.simulation.plans import simulate_pools

TEXT = one_line(read_page("scenarios/multi-model-service.md"))


@cache
def planned() -> tuple[System, Plan]:
    system = load_system(EVERYTHING)
    return system, solve(system)


def test_the_directory_is_what_the_script_writes() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in EVERYTHING.glob("*.yaml")}
    assert written == dict(files())


@pytest.mark.slow
def test_nothing_of_a_system_is_lost() -> None:
    together, alone = load_system(EVERYTHING), parts()
    assert {"batching-platform", "multi-model-service", "queue-servers", "serving-fleet", "small"} == set(
        alone
    )
    for section, found in (
        ("servers", together.documented),
        ("accelerators", together.accelerators),
        ("serviceClasses", together.service_classes),
        ("models", together.profiles),
        ("routes", together.routes),
    ):
        assert len(found) == sum(len(document.get(section, ())) for document in alone.values())
    stock = sum(len(document.get("count", ())) for document in alone.values())
    assert len(together.capacity) == stock + len(CARDS)
    assert f"USD/h for {len(together.documented)} servers" in TEXT


@pytest.mark.slow
def test_the_plan_is_proved_and_costs_what_the_five_plans_do() -> None:
    """No two systems have a card in common, so that each is planned as by itself."""
    system, plan = planned()
    assert (plan.status, plan.complete, verify(plan, system)) == ("optimal", True, [])
    assert all(level.gap == 0 for level in plan.levels)
    alone = sum(solve(load_system(SPECS / name)).total_cost_cents_per_h for name in SYSTEMS)
    assert plan.total_cost_cents_per_h == pytest.approx(alone, abs=0.005)
    assert f"the five plans: {alone / 100:,.2f} USD/h" in TEXT


@pytest.mark.slow
def test_the_overview_has_every_server() -> None:
    system, plan = planned()
    overview = describe(system, plan)
    assert sum(row.cost_cents_per_h for row in overview.types) == pytest.approx(plan.total_cost_cents_per_h)
    served = {row.server for row in overview.placed}
    queues = {name for use in plan.shared_queues.values() for name in use.members}
    assert served | queues >= set(system.streams)
    assert {"platform", "flask", "moderation", "Free-llama_70b", "eu-chat"} <= served
    assert {row.server for row in overview.on_shared_cards} == {"moderation", "language-id"}


@pytest.mark.slow
def test_the_report_names_every_server() -> None:
    system = load_system(EVERYTHING)
    page = render_report(make_report(system), system, "html")
    plan = planned()[1]
    names = (set(system.streams) - plan.queued_servers) | set(plan.shared_queues)
    assert len(names) > 25
    assert [name for name in names if name not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_target_is_missed_by_more_than_a_tenth_in_simulation(seed: int) -> None:
    system, plan = planned()
    found = simulate_pools(system, plan, Effort(requests=20_000, seed=seed))
    checks = [(pool.server, check) for pool in found.pools for check in pool.targets]
    assert len(checks) > 60
    assert [
        (server, check.target, check.simulated.value, check.limit)
        for server, check in checks
        if not check.met and check.simulated.value > 1.1 * check.limit
    ] == []


@pytest.mark.slow
def test_the_explanation_proves_every_number() -> None:
    system = load_system(EVERYTHING).with_options(time_limit_s=500)
    found = explain(system)
    assert len(found.servers) == len(found.plan.allocations) > 30
    assert found.unanswered == ()
