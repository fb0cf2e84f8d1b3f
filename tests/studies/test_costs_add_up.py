"""Rows of every table of costs add up to the total, also with price tiers and rented services."""

from collections.abc import Iterable
from math import fsum

import pytest
from feature_fleets import random_with_routes
from slow_cases import mostly_slow

from optimizer import Plan, compare, load_system, make_report, scale_loads, solve
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.report_sections import report_sections
from optimizer.section import Section
from optimizer.studies.comparison.comparison_document import ComparisonRow

TIERS, RENTALS = 7011, 7003
"""Seeds with committed price tiers, and with rented services."""


def cost_of(rows: Iterable[ComparisonRow]) -> float:
    return fsum(row.second.cost_cents_per_h for row in rows if row.second is not None)


def column(section: Section, name: str) -> list[float]:
    """Return the numbers of a column, without the total."""
    place = [item.name for item in section.columns].index(name)
    return [row[place] or 0.0 for row in section.rows]


def amounts(plan: Plan, *origins: str) -> float:
    return fsum(cost.amount_cents_per_h for cost in plan.costs if cost.origin in origins)


@pytest.mark.parametrize("seed", [TIERS, RENTALS, *mostly_slow(range(300), 12)])
def test_rows_add_up_to_the_total(seed: int) -> None:
    system = load_system(random_with_routes(seed))
    found = compare(system, second_options={"transition_penalty": 0.5})
    plan, total = found.second.plan, found.second.plan.total_cost_cents_per_h
    pools = [pool.cost_cents_per_h for mine in plan.allocations.values() for pool in mine]
    cards = [use.cost_cents_per_h for use in plan.shared_cards]
    assert fsum([*pools, *cards, amounts(plan, "tiers", "external")]) == pytest.approx(total)
    assert found.total.second is not None
    assert found.total.second.cost_cents_per_h == pytest.approx(total)
    for rows in (found.servers, found.classes, found.class_models):
        assert cost_of(rows) + amounts(plan, "tiers") == pytest.approx(total)
    types = fsum(row.second.cost_cents_per_h or 0.0 for row in found.types if row.second is not None)
    assert types + fsum(cost.second for cost in found.costs) == pytest.approx(total)
    assert fsum(cost.second for cost in found.costs) == pytest.approx(amounts(plan, "tiers", "external"))


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
