"""A feature with a coupling but no further replicas, and with a section of the plan and a table of its own.

The tree is copied, `tests/separate` becomes a folder of `optimizer/features`, and the rest runs in a process
of its own: servers that run on no common accelerator type.
"""

from pathlib import Path
from typing import Any

import pytest
from copied_tree import answers_in, copy_tree

pytestmark = pytest.mark.slow

FEATURES = "optimizer/features"
EDITS = {
    "from optimizer.features.shared_cards.feature import": (
        "from optimizer.features.separate.feature import SEPARATE\n"
        "from optimizer.features.shared_cards.feature import"
    ),
    "    PLACES,\n": "    PLACES,\n    SEPARATE,\n",
}
"""What is edited in the table of features."""
FIELD_EDITS = {
    "from optimizer.features.shared_cards.fields import": (
        "from optimizer.features.separate.fields import SeparateField\n"
        "from optimizer.features.shared_cards.fields import"
    ),
    "class ServerFeatureFields(\n": "class ServerFeatureFields(\n    SeparateField,\n",
}
"""What is edited in the composition of fields."""
PLAN_EDITS = {
    "from optimizer.features.shared_cards.uses import": (
        "from optimizer.features.separate.uses import SeparateUse\n"
        "from optimizer.features.shared_cards.uses import"
    ),
    "    caches: tuple[": (
        "    separate: tuple[SeparateUse, ...] = Field((), exclude_if=not_, strict=False)\n"
        '    """Separate servers; absent if there are none."""\n'
        "    caches: tuple["
    ),
}
"""What is edited in the document of a plan."""
VIEW_EDITS = {
    "from optimizer.features.shared_cards.view import": (
        "from optimizer.features.separate.feature import SEPARATE\n"
        "from optimizer.features.separate.view import separate_uses\n"
        "from optimizer.features.shared_cards.view import"
    ),
    '        "changes": placed.changes,\n': (
        '        "separate": separate_uses(system, pools) if SEPARATE.name in used else (),\n'
        '        "changes": placed.changes,\n'
    ),
}
"""What is edited where the sections of a plan are derived."""
SECTION_EDITS = {
    "from optimizer.features.versions.sections import": (
        "from optimizer.features.separate.sections import separate_sections\n"
        "from optimizer.features.versions.sections import"
    ),
    "    yield from reserve_sections(plan)\n": (
        "    yield from reserve_sections(plan)\n    yield from separate_sections(plan)\n"
    ),
}
"""What is edited where the tables of features are listed."""


def answered(copy: Path, systems: int) -> dict[str, Any]:
    edits = {
        f"{FEATURES}/table.py": EDITS,
        f"{FEATURES}/fields.py": FIELD_EDITS,
        "optimizer/plan/document.py": PLAN_EDITS,
        f"{FEATURES}/views.py": VIEW_EDITS,
        f"{FEATURES}/sections.py": SECTION_EDITS,
    }
    copy_tree(copy, {"separate": f"{FEATURES}/separate"}, edits)
    return answers_in(copy, "separate_answers.py", [str(systems)])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answered(tmp_path_factory.mktemp("copy"), 30)


def test_plans_of_separate_servers_match_enumeration(answers: dict[str, Any]) -> None:
    """Also the reason of a server that has cards, but only of the types of another one."""
    assert answers["faults"] == []


def test_the_plan_states_and_shows_the_types(answers: dict[str, Any]) -> None:
    (use,) = answers["plan"]["separate"]
    assert use["server"] == "t"
    assert {*use["types"], *use["otherTypes"]} == {"A", "B"}
    assert "Separate servers" in answers["texts"]["solve"]
    assert "## Separate servers" in answers["texts"]["report"]


def test_every_false_leaf_and_a_common_type_are_found(answers: dict[str, Any]) -> None:
    assert answers["believed"] == []
    assert any("from which it is separate" in line for line in answers["together"])


def test_alternatives_are_replicas_not_shared_cards(answers: dict[str, Any]) -> None:
    runs = {row["server"]: [pool["accelerator"] for pool in row["pools"]] for row in answers["runner-up"]}
    other = {
        row["server"]: [pool["accelerator"] for pool in row["runnerUp"]["pools"]]
        for row in answers["runner-up"]
    }
    assert runs != other
    assert {name: sorted(mine + other[name]) for name, mine in runs.items()} == {
        "s": ["A", "B"],
        "t": ["A", "B"],
    }


def test_unknown_and_own_names_are_refused(answers: dict[str, Any]) -> None:
    itself, unknown = answers["refusals"]
    assert itself == ["servers[1].apartFrom: is the server itself; name another"]
    assert unknown == ["servers[1].apartFrom: there is no server 'u'; name one"]


@pytest.mark.parametrize("command", ["sweep", "replay"])
def test_studies_accept_separate_servers(command: str, answers: dict[str, Any]) -> None:
    assert answers["texts"][command]
