"""Comparisons: the sum of the parts is the whole, and every difference is what two solves say."""

from fractions import Fraction
from pathlib import Path

import pytest

from optimizer import Comparison, compare, load_system, solve


@pytest.fixture(scope="module")
def large() -> Comparison:
    return compare(load_system(Path(__file__).parents[2] / "specs" / "large"))


def test_scarcity_costs_what_two_solves_say(large: Comparison) -> None:
    system = load_system(Path(__file__).parents[2] / "specs" / "large")
    unlimited, limited = solve(system, unlimited=True), solve(system, unlimited=False)
    assert large.kind == "scarcity"
    assert (large.first.plan, large.second.plan) == (unlimited, limited)
    difference = limited.total_cost_cents_per_h - unlimited.total_cost_cents_per_h
    assert large.total.difference.cost_cents_per_h == difference == 8095.5


def test_the_parts_of_every_kind_add_up_to_the_whole(large: Comparison) -> None:
    """Prices of the sample are multiples of a quarter of a cent: the sums are exact."""
    whole = Fraction(large.total.difference.cost_cents_per_h)
    for rows in (large.servers, large.classes, large.class_models):
        assert sum(Fraction(row.difference.cost_cents_per_h) for row in rows) == whole
    assert sum(Fraction(row.cost_difference_cents_per_h or 0) for row in large.types) == whole
