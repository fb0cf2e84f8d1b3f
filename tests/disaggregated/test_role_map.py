"""The map of when prefill and decode pools pay, from a sweep over prompt lengths and ITL targets."""

from math import inf
from typing import Any

import pytest
from role_oracles import document

from optimizer import load_system, solve
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.render.plots import draw
from optimizer.render.sweep_sections import sweep_sections
from optimizer.studies.figures.figure_document import GridPanel
from optimizer.studies.sweep.sweep_document import RoleCosts, Sweep
from optimizer.studies.sweep.sweep_figure import sweep_figure

PROMPTS, ITL_MS = (1000, 4000), (10, 60)


@pytest.fixture(scope="module")
def swept() -> Sweep:
    vary = f"itl:c/m={ITL_MS[0]},{ITL_MS[1]}", f"avgInTokens:s={PROMPTS[0]},{PROMPTS[1]}"
    return sweep_system(load_system(document()), SweepOptions(vary=vary))


def test_each_point_has_the_costs_of_its_plan(swept: Sweep) -> None:
    point = next(one for one in swept.points if one.values == (10, 4000))
    use = solve(load_system(document(itl_ms=10))).disaggregation["s"]
    (costs,) = point.disaggregation
    assert use.aggregated_alternative is not None
    assert use.disaggregated_alternative is not None
    assert costs.aggregated_cents_per_h == use.aggregated_alternative.cost_cents_per_h
    assert costs.disaggregated_cents_per_h == use.disaggregated_alternative.cost_cents_per_h
    assert point.total_cost_cents_per_h == min(costs.aggregated_cents_per_h, costs.disaggregated_cents_per_h)


def test_the_map_shows_where_pools_pay(swept: Sweep) -> None:
    """Prompts of 4,000 tokens pay at a strict ITL, and do not at a loose one."""
    figure = sweep_figure(swept)
    costs, ratios = figure.panels
    assert costs.kind == "grid"
    assert isinstance(ratios, GridPanel)
    assert ratios.title.startswith("s: cost of prefill and decode pools")
    assert (ratios.columns, ratios.rows) == (("10", "60"), ("1,000", "4,000"))
    strict, loose = ratios.cells[1]
    assert (float(strict.text) < 0.7, strict.level is not None and strict.level < 0) == (True, True)
    assert float(loose.text) >= 1
    assert b"do both" in draw(figure, "svg")
    columns = [column.name for part in sweep_sections(swept) if part.rows for column in part.columns]
    assert "s: pools / both" in columns


@pytest.mark.parametrize(
    ("costs", "ratio", "text"),
    [
        ({"aggregated_cents_per_h": 200.0, "disaggregated_cents_per_h": 100.0}, 0.5, "0.50"),
        ({"aggregated_cents_per_h": 200.0}, inf, "no pools"),
        ({"disaggregated_cents_per_h": 200.0}, 0.0, "only pools"),
        ({}, None, ""),
    ],
)
def test_a_way_that_is_not_possible_is_named(
    swept: Sweep, costs: dict[str, Any], ratio: float | None, text: str
) -> None:
    one = RoleCosts(server="s", **costs)
    assert one.ratio == ratio
    first, *others = swept.points
    points = (first.model_copy(update={"disaggregation": (one,)}), *others)
    panel = sweep_figure(swept.model_copy(update={"points": points})).panels[1]
    assert isinstance(panel, GridPanel)
    assert panel.cells[0][0].text == text


def test_sweeps_without_pools_have_no_map() -> None:
    vary = "itl:c/m=10,60", "avgInTokens:s=1000,4000"
    swept = sweep_system(load_system(document(None)), SweepOptions(vary=vary))
    assert (len(sweep_figure(swept).panels), swept.points[0].disaggregation) == (1, ())
    assert "disaggregation" not in swept.model_dump_json()
