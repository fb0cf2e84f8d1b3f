"""A cost of what all servers use together that is one file and an entry in a table.

The tree is copied, `tests/licence_fee.py` becomes a file of `optimizer/prices`, and the rest runs in a
process of its own.
"""

from typing import Any

import pytest
from copied_tree import answers_in, copy_tree

EDITS = {
    "from optimizer.prices.price import SharedPrice\n": (
        "from optimizer.prices.licence_fee import LicenceFee\n"
        "from optimizer.prices.price import SharedPrice\n"
    ),
    "(TierPrice, NodePrice)": "(TierPrice, NodePrice, LicenceFee)",
}
"""What is edited in the table of prices."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = tmp_path_factory.mktemp("copy")
    copy_tree(
        copy, {"licence_fee.py": "optimizer/prices/licence_fee.py"}, {"optimizer/prices/table.py": EDITS}
    )
    return answers_in(copy, "licence_answers.py", ["6"])


def test_a_plan_states_the_cost_and_adds_it_up(answers: dict[str, Any]) -> None:
    (few,), (many,) = answers["few"], answers["many"]
    assert few == {"name": "licences", "amount": 500.0, "origin": "licences"}
    assert many["amount"] > 500.0
    assert answers["total"] == answers["pools"] + many["amount"]


def test_every_solver_minimises_it(answers: dict[str, Any]) -> None:
    """The best levels are worked out over all numbers of replicas."""
    assert answers["faults"] == []


def test_a_false_cost_is_found_and_compared(answers: dict[str, Any]) -> None:
    assert any("costs.0" in line for line in answers["found"])
    assert not answers["same"]
