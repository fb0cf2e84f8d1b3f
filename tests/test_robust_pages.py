"""The pages on reserves, prices and limits say what the program says."""

import re
import runpy

import pytest
from doc_pages import ROOT, read_page, table, with_tables

from optimizer import load_system, solve, verify
from optimizer.cli.main import main

PAGE = read_page("scenarios/robust.md")


@pytest.mark.few(2)
@pytest.mark.parametrize("row", table(PAGE, "budget [cents/h]"), ids=lambda row: row[0])
def test_what_a_budget_pays_for(row: list[str]) -> None:
    budget, cost, with_reserve, unserved = row
    system = load_system(ROOT / "specs" / "robust.yaml").with_options(
        budget_cents_per_h=float(budget.replace(",", ""))
    )
    plan = solve(system)
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    assert f"{plan.total_cost_cents_per_h:,.2f}" == cost
    assert ", ".join(item.server for item in plan.reserves if item.has_reserve) == with_reserve
    assert ", ".join(sorted(item.server for item in plan.unserved)) == unserved


def test_the_numbers_in_the_text() -> None:
    plan = solve(load_system(ROOT / "specs" / "robust.yaml"))
    (chat,), (search,) = plan.allocations["chat"], plan.allocations["search"]
    each = chat.max_arrival_rate_rpm / chat.num_replicas
    needed = [-(-load // each) for load in (1800, 1.2 * 1800, 1200, 1.2 * 1200)]
    assert (needed, chat.num_replicas, search.num_replicas) == ([4, 5, 3, 3], 6, 4)
    all_there, three_of_four = 0.995**3, 0.995**4 + 4 * 0.995**3 * 0.005
    assert (f"{all_there:.1%}", f"{three_of_four:.3%}") == ("98.5%", "99.985%")
    assert "99.985% of" in PAGE
    assert "98.5% of the time" in PAGE
    (rented,) = plan.rented
    assert (rented.server, f"{rented.cost_cents_per_h:.2f}") == ("summaries", "72.58")
    without = solve(load_system(ROOT / "specs" / "robust.yaml").without_external())
    (pool,) = without.allocations["summaries"]
    assert (pool.accelerator, pool.cost_cents_per_h) == ("L40S", 90)
    assert without.not_rented == ("summaries",)


def test_totals_of_a_comparison_say_what_else_they_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["compare", str(ROOT / "specs" / "robust.yaml"), "--wide"])
    shown = capsys.readouterr().out
    tiers = [line for line in shown.splitlines() if line.strip().startswith("price tiers: H100")]
    assert [re.findall(r"-[0-9,.]+", line) for line in tiers] == [
        ["-1,040.00", "-1,440.00", "-400.00"], ["-400.00"], ["-1,040.00", "-1,440.00", "-400.00"]
    ]  # fmt: skip
    assert re.search(r"summaries +0\.00 +72\.58 +\+72\.58", shown)
    assert 4800 + 432.58 - 1440 == 3792.58  # classes
    assert 4800 + 360 - 1440 + 72.58 == 3792.58  # types
    for number in ("4,800.00", "432.58", "360.00", "3,792.58"):
        assert number in shown
    assert "0 x external" not in shown
    assert "rented" in shown


@pytest.mark.slow
def test_what_headroom_brings() -> None:
    rows = runpy.run_path(str(ROOT / "tests" / "benchmarks" / "headroom.py"))["rows"]()
    assert with_tables(read_page("policies.md"), [rows]) == read_page("policies.md")
