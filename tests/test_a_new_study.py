"""A study that is one file and one table entry: its command, routes, client methods and reference follow.

The tree is copied, `tests/cost_at_load.py` becomes a module of `optimizer/jobs`, and the rest runs in a
separate process.
"""

import json
from typing import Any

import pytest
from builders import accelerator, document, server
from copied_tree import ROOT, answers_in, copy_tree

from optimizer import load_system, scale_loads, solve

pytestmark = pytest.mark.slow

ENTRY = '    explain: "StudyEntry['
EDITS = {
    "if TYPE_CHECKING:\n": (
        "if TYPE_CHECKING:\n    from optimizer.jobs.cost_at_load import CostAtLoad, CostAtLoadOptions\n"
    ),
    ENTRY: (
        '    cost_at_load: "StudyEntry[CostAtLoadOptions, CostAtLoad]" = StudyEntry(\n'
        '        "cost_at_load", "price a multiple of the load"\n    )\n' + ENTRY
    ),
}
"""The edit of the table of studies."""
SOURCE = document([server("s")], [accelerator("A"), accelerator("B", cost=5)], {"A": 90, "B": 90})
COST = solve(scale_loads(load_system(SOURCE), 3.0)).total_cost_cents_per_h
ANSWER = {"factor": 3.0, "cost": COST}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the answers of the copy, from a process of its own."""
    copy = tmp_path_factory.mktemp("copy")
    copy_tree(copy, {"cost_at_load.py": "optimizer/jobs/cost_at_load.py"}, {"optimizer/jobs/table.py": EDITS})
    path = copy / "system.json"
    path.write_text(json.dumps(SOURCE), encoding="utf-8")
    return answers_in(copy, "study_answers.py", (str(path), str(ROOT / "docs" / "reference.md")))


def test_the_command_answers(answers: dict[str, Any]) -> None:
    assert answers["json"] == ANSWER
    assert f"{COST:,.2f}" in answers["table"]
    assert answers["csv"].startswith("factor,")
    assert "price a multiple of the load" in answers["help"]


def test_the_routes_answer(answers: dict[str, Any]) -> None:
    assert answers["routes"] == [ANSWER, ANSWER]
    assert answers["summary"] == ["Price a load", "Price the fleet"]
    assert answers["described"] == "Multiply every arrival rate by this factor."


def test_both_clients_answer(answers: dict[str, Any]) -> None:
    assert answers["clients"] == [ANSWER] * 3


def test_bad_input_is_one_line(answers: dict[str, Any]) -> None:
    status, out, err = answers["wrong"]
    assert (status, out) == (2, "")
    assert err.startswith("inferplan cost_at_load: error: argument --factor: '0': must be more than 0")
    status, detail = answers["refusal"]
    assert status == 422
    assert "factor" in detail


def test_the_reference_page_has_it(answers: dict[str, Any]) -> None:
    page = answers["page"]
    assert "`POST /v1/cost_at_load`" in page
    assert "`factor`" in page
    assert "usage: inferplan cost_at_load" in page
    assert "multiply every arrival rate by this factor" in page


def test_a_path_in_place_of_a_system_gets_advice(answers: dict[str, Any]) -> None:
    assert answers["refused path"].startswith("cost_at_load: system must be a System")
