"""Power: the curve against numpy's interpolation, and a fleet's power counted by hand."""

from pathlib import Path

import numpy as np
import pytest
from builders import accelerator, document, profile, server
from hypothesis import given
from hypothesis import strategies as st

from optimizer import load_system, solve
from optimizer.spec.schema import Power
from optimizer.studies.reports.overview import describe
from optimizer.studies.reports.power import accelerator_power_w, is_known

ROOT = Path(__file__).parents[2]
watts = st.floats(0, 5000)
CURVE = {"idle": 100.0, "midPower": 400.0, "midUtil": 0.6, "full": 500.0}


@given(idle=watts, middle=st.floats(1, 5000), full=watts, at=st.floats(0.01, 0.99), use=st.floats(0, 1))
def test_the_curve_is_the_line_through_its_three_points(
    idle: float, middle: float, full: float, at: float, use: float
) -> None:
    curve = Power(idle_w=idle, full_w=full, mid_power_w=middle, mid_utilization=at)
    expected = np.interp(use, [0, at, 1], [idle, middle, full])
    assert accelerator_power_w(curve, use) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("middle", "at"), [(0.0, 0.0), (0.0, 0.6), (300.0, 0.0), (300.0, 1.0)])
def test_without_a_point_inside_the_curve_is_one_straight_line(middle: float, at: float) -> None:
    curve = Power(idle_w=100, full_w=500, mid_power_w=middle, mid_utilization=at)
    assert [accelerator_power_w(curve, use) for use in (0, 0.25, 1)] == [100, 200, 500]


def test_a_curve_of_zeros_is_no_curve() -> None:
    assert not is_known(Power())
    assert is_known(Power(idle_w=1))
    assert is_known(Power(full_w=1))


def test_a_pool_draws_the_power_of_all_its_accelerators() -> None:
    """Two accelerators a replica, three replicas: six times the curve at the pool's utilisation."""
    source = document(
        [server("s", rate=600, replicas=3)],
        [accelerator("A") | {"power": CURVE}],
        models=[profile("m", "A", count=2)],
    )
    system = load_system(source)
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    assert pool.num_replicas == 3
    assert 0 < pool.utilization < 0.6
    overview = describe(system, plan)
    expected = 6 * (100 + 300 * pool.utilization / 0.6)
    assert overview.pools[0].power_w == pytest.approx(expected, rel=1e-12)
    assert overview.types[0].power_w == overview.power_w == overview.pools[0].power_w


def test_where_a_curve_is_missing_the_sum_is_not_known() -> None:
    source = document(
        [server("s", replicas=1, accelerators=["A"]), server("t", replicas=1, accelerators=["B"])],
        [accelerator("A") | {"power": CURVE}, accelerator("B")],
    )
    system = load_system(source)
    overview = describe(system, solve(system))
    assert [row.power_w is None for row in overview.types] == [False, True]
    assert overview.power_w is None


def test_a_fleet_that_runs_nothing_draws_nothing() -> None:
    system = load_system(document([server("s", rate=0)], [accelerator("A")]))
    assert describe(system, solve(system)).power_w == 0


def test_types_add_up_to_the_pools_on_the_large_system() -> None:
    system = load_system(ROOT / "specs" / "large")
    plan = solve(system)
    overview = describe(system, plan)
    assert overview.power_w is not None
    assert overview.power_w == pytest.approx(sum(row.power_w or 0 for row in overview.types), rel=1e-12)
    by_hand = 0.0
    for name, pools in plan.allocations.items():
        for pool in pools:
            slice_, perf = (
                system.accelerators[pool.accelerator],
                system.profiles[system.servers[name].model, pool.accelerator],
            )
            curve = slice_.power
            points = [0, curve.mid_utilization, 1], [curve.idle_w, curve.mid_power_w, curve.full_w]
            by_hand += pool.num_replicas * perf.acc_count * float(np.interp(pool.utilization, *points))
    assert overview.power_w == pytest.approx(by_hand, rel=1e-12)
    total = plan.total_cost_cents_per_h
    assert sum(row.cost_cents_per_h for row in overview.types) == pytest.approx(total, rel=1e-12)
    assert {row.type: row.used for row in overview.types} == {x.type: x.used for x in plan.capacity}
