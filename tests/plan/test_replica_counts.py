"""Replicas by purpose, and the number from which on an availability and a utilisation hold together."""

from fractions import Fraction
from math import comb, floor
from typing import Any

import numpy as np
import pytest
from small_fleets import available

from optimizer import explain, solve, verify
from optimizer.features.reserves.offers import least_available, replicas_for_both
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.plan_sections import plan_sections
from optimizer.render.report_sections import report_sections
from optimizer.studies.report import make_report

NEEDED = (1, 2, 4, 8, 11, 16, 32, 64, 100)
TABLE = {
    0.98: (2, 4, 6, 10, 14, 19, 36, 70, 108),
    0.99: (2, 3, 5, 10, 13, 18, 35, 68, 105),
    0.995: (2, 3, 5, 9, 13, 18, 34, 67, 104),
    0.999: (1, 3, 5, 9, 12, 17, 33, 66, 102),
}
"""Minimum replicas of which NEEDED are available with 99.9 %, computed outside this project."""


@pytest.mark.parametrize("availability", TABLE)
def test_replicas_for_an_availability_match_the_table(availability: float) -> None:
    count = len(NEEDED)
    found = least_available(np.array(NEEDED), np.full(count, availability), np.full(count, 0.999))
    assert tuple(found) == TABLE[availability]


def suffices(replicas: int, needed: int, there: Fraction, target: Fraction) -> bool:
    """Return whether enough replicas are there often enough, in fractions."""
    gone = (
        comb(replicas, j) * there**j * (1 - there) ** (replicas - j) for j in range(min(needed, replicas + 1))
    )
    return 1 - sum(gone) >= target


@pytest.mark.few(1)
@pytest.mark.parametrize(("there", "full"), [(0.99, 0.911), (0.995, 0.95), (0.98, 1.0), (0.999, 0.85)])
def test_both_targets_hold_from_the_stated_replicas_on(there: float, full: float) -> None:
    """Up to 120 needed replicas are tried in fractions; Chernoff's bound is below that in each case."""
    exact, target, share = Fraction(str(there)), Fraction("0.999"), Fraction("0.8") / Fraction(str(full))
    holds = [suffices(floor(k / share), k, exact, target) for k in range(1, 121)]
    least = max(k for k, good in enumerate(holds, 1) if not good) + 1
    fewest = next(m for m in range(least, 2 * least) if suffices(m, least, exact, target))
    assert replicas_for_both(there, 0.999, full, 0.8) == fewest
    assert least < 100


def test_small_fleets_have_a_conflict_and_16_to_32_replicas_none() -> None:
    """11 replicas at 0.909 become 13 at 0.77; at 0.911 of 0.99 both hold from 16 to 32 replicas on."""
    assert 0.909 * 11 / TABLE[0.99][4] == pytest.approx(0.77, abs=0.001)
    both = replicas_for_both(0.99, 0.999, 0.911, 0.8)
    assert both is not None
    assert 16 <= both <= 32


@pytest.mark.parametrize(
    ("there", "full", "found"), [(0.99, 0.79, None), (0.98, 0.816, None), (1.0, 0.8, 1), (1.0, 0.79, None)]
)
def test_no_fleet_size_is_stated_where_there_is_none(there: float, full: float, found: int | None) -> None:
    assert replicas_for_both(there, 0.999, full, 0.8) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"availabilityTarget": 0.999}, "4 replicas, of which 1 for 99.9% availability."),
        (
            {"availabilityTarget": 0.999, "surge": 0.5},
            "4 replicas, of which 1 for 99.9% availability; 2 more while it rolls out.",
        ),
        (
            {"availabilityTarget": 0.999, "spareReplicas": 1, "headroomShare": 0.5},
            "7 replicas, of which 2 for headroom, 1 spare and 1 for 99.9% availability.",
        ),
        (
            {"spareReplicas": 2, "surge": 1.0},
            "5 replicas, of which 2 spare; 5 more while it rolls out.",
        ),
        ({"surge": 1.0}, "3 replicas; 3 more while it rolls out."),
    ],
)
def test_replicas_are_stated_by_purpose(fields: dict[str, Any], text: str) -> None:
    system = available(**fields)
    plan = solve(system)
    assert verify(plan, system) == []
    shown = [plan_sections(plan, system), explanation_sections(explain(system))]
    shown.append(report_sections(make_report(system), system))
    for sections in shown:
        (section,) = [item for item in sections if item.name == "rollouts"]
        assert f"a: {text}" in section.notes


def test_the_conflict_of_utilisation_and_availability_is_stated() -> None:
    plan = solve(available(availabilityTarget=0.999))
    count = plan.replica_counts["a"]
    assert count.utilization == plan.allocations["a"][0].utilization
    assert count.full_utilization is not None
    assert count.utilization is not None
    assert count.full_utilization > count.utilization


def test_without_targets_and_roll_outs_nothing_is_stated() -> None:
    for fields in ({}, {"spareReplicas": 1}, {"headroomShare": 0.5}):
        plan = solve(available(**fields))
        assert plan.replica_counts == {}
        assert "replicaCounts" not in plan.model_dump_json(by_alias=True)
