"""Figures stand beside the limits they must keep to, in the table of a plan and in its report."""

from pathlib import Path

import pytest
from shown_text import page_of, text_of

from optimizer import load_system, solve
from optimizer.plan import TargetFigure
from optimizer.queueing.measures import MISSED, TargetMeasure
from optimizer.render.plan_sections import plan_sections

DOCUMENT = """
accelerators: [{name: H100, type: H100, cost: 400, multiplicity: 1}]
models:
- {name: m, acc: H100, maxBatchSize: 64, perfParms: {alpha: 6.8, beta: 0.0225, gamma: 4.2e-5},
   kvCapacity: 447936, queueModel: continuous}
serviceClasses:
- {name: Chat, priority: 1, modelTargets: [{model: m, slo-ttft: 400, slo-itl: 30, percentile: 95}]}
- {name: Good, priority: 2, modelTargets: [{model: m, slo-ttft: 800, slo-itl: 50, goodputShare: 0.97}]}
servers:
- {name: a, class: Chat, model: m,
   currentAlloc: {load: {arrivalRate: 60, avgInTokens: 1000, avgOutTokens: 250}}}
- {name: b, class: Good, model: m,
   currentAlloc: {load: {arrivalRate: 60, avgInTokens: 1000, avgOutTokens: 250}}}
count: [{type: H100, count: 4}]
"""


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (TargetFigure.of(TargetMeasure("ttft", 95), 512.3, 800), "p95 TTFT 512.3 ms (800 ms)"),
        (
            TargetFigure.of(MISSED, 0.024, 0.03),
            "97.6 % within (97 %)",
        ),
    ],
)
def test_a_figure_stands_beside_its_limit(figure: TargetFigure, text: str) -> None:
    assert figure.text == text


@pytest.mark.slow
def test_percentiles_and_shares_are_shown_with_their_limits(tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    path.write_text(DOCUMENT, encoding="utf-8")
    system = load_system(path)
    plan = solve(system)
    itl, ttft = plan.allocations["a"][0].targets
    text, page = text_of(plan_sections(plan, system)), page_of(system)
    assert f"p95 {itl.value:,.1f} (30)" in text
    assert f"p95 {ttft.value:,.0f} (400)" in text
    assert " % within (97 %)" in text
    assert f"| p95 {ttft.value:,.0f} |" in page
    assert " % within (97 %)" in page
    head, *rows = page_of(system, "csv").splitlines()
    assert "target,statistic,value [ms],limit [ms]" in head
    assert any(f",TTFT,p95,{ttft.value!r},400.0" in row for row in rows)
    assert any(f",ITL,p95,{itl.value!r},30.0" in row for row in rows)
