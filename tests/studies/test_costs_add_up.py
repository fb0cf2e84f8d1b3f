"""Every table is a sum of the rows of a plan: costs, replicas, servers and loads add up to the total."""

from collections.abc import Iterable
from math import fsum

import pytest
from feature_fleets import random_with_routes
from slow_cases import mostly_slow

from optimizer import System, compare, load_system, make_report, scale_loads, solve
from optimizer.plan.document import PlanCost
from optimizer.plan.table import PlanTable
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.report_sections import report_sections
from optimizer.section import Section
from optimizer.studies.comparison.comparison_document import Comparison, ComparisonRow
from optimizer.studies.overview import describe
from optimizer.studies.service import service_by_priority

TIERS, RENTALS = 7011, 7003
"""Seeds with committed price tiers, and with rented services."""


def cost_of(rows: Iterable[ComparisonRow]) -> float:
    return fsum(row.second.cost_cents_per_h for row in rows if row.second is not None)


def column(section: Section, name: str) -> list[float]:
    """Return the numbers of a column, without the total."""
    place = [item.name for item in section.columns].index(name)
    return [row[place] or 0.0 for row in section.rows]


def amounts(costs: Iterable[PlanCost]) -> float:
    return fsum(cost.amount_cents_per_h for cost in costs)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [TIERS, RENTALS, *mostly_slow(range(300), 12)])
def test_rows_add_up_to_the_total(seed: int) -> None:
    system = load_system(random_with_routes(seed))
    found = compare(system, second_options={"transition_penalty": 0.5})
    plan, total = found.second.plan, found.second.plan.total_cost_cents_per_h
    pools = [pool.cost_cents_per_h for mine in plan.allocations.values() for pool in mine]
    cards = [use.cost_cents_per_h for use in plan.shared_cards]
    assert fsum([*pools, *cards, amounts(plan.costs)]) == pytest.approx(total)
    assert found.total.second is not None
    assert found.total.second.cost_cents_per_h == pytest.approx(total)
    for rows in (found.servers, found.classes, found.class_models):
        assert cost_of(rows) + amounts(plan.shared_costs) == pytest.approx(total)
    types = fsum(row.second.cost_cents_per_h or 0.0 for row in found.types if row.second is not None)
    assert types + fsum(cost.second for cost in found.costs) == pytest.approx(total)
    assert fsum(cost.second for cost in found.costs) == pytest.approx(amounts(plan.costs))
    sums(system, found)


def sums(system: System, found: Comparison) -> None:
    """Check that each table has the replicas, servers and loads of the rows of the second plan."""
    plan, table = found.second.plan, PlanTable.of(found.second.plan, system)
    replicas = sum(row.replicas for row in table.placed)
    pools = [pool for name in plan.allocations for pool in plan.pools_of(name)]
    assert replicas == sum(pool.num_replicas for pool in pools)
    total = found.total.second
    assert total is not None
    for rows in (found.servers, found.classes, found.class_models):
        sides = [row.second for row in rows if row.second is not None]
        assert sum(side.num_replicas for side in sides) == total.num_replicas == replicas
        assert sum(side.servers for side in sides) == total.servers == len(system.streams)
        assert sum(side.served_in_full for side in sides) == len(system.streams) - len(plan.unserved)
        assert fsum(side.arrival_rate_rpm or 0.0 for side in sides) == pytest.approx(total.arrival_rate_rpm)
    for rows in (found.classes, found.class_models):
        carried = [row.second.carried_rate_rpm for row in rows if row.second is not None]
        assert fsum(carried) == pytest.approx(total.carried_rate_rpm)
    overview = describe(system, plan)
    assert sum(item.replicas for item in overview.types) == replicas
    listed = fsum(row.cost_cents_per_h for row in table.placed if row.pool is not None)
    assert fsum(item.cost_cents_per_h for item in overview.types) == pytest.approx(listed)
    service = service_by_priority(plan, system)
    assert sum(item.servers for item in service) == len(plan.documented)
    assert sum(item.servers - item.served_in_full for item in service) == len(plan.short_servers)
    groups = table.by(lambda load: (load.service_class, load.model))
    assert sum(len(group.rows) for group in groups.values()) == len(table.rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [TIERS, RENTALS])
def test_tables_have_a_row_for_every_other_cost(seed: int) -> None:
    system = load_system(random_with_routes(seed))
    plan = solve(system)
    assert plan.costs
    (types,) = [item for item in report_sections(make_report(system), system) if item.name == "types"]
    assert fsum(column(types, "cost")) == pytest.approx(plan.total_cost_cents_per_h)
    twice = system.with_capacity({item.type: 2 * item.cards for item in system.spec.count})
    found = compare(system, scale_loads(twice, 0.3))
    for section in comparison_sections(found):
        if section.name in {"classes", "costs"}:
            assert section.total is not None
            places = [i for i, item in enumerate(section.columns) if item.unit]
            for i in places[:2]:
                assert fsum(row[i] or 0.0 for row in section.rows) == pytest.approx(section.total[i])
