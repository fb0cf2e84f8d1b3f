"""A feature that is one folder and an entry in two tables: mirrored servers, with a twin of every replica.

The tree is copied, `tests/mirrored` becomes a folder of `optimizer/features`, and the rest runs in a process
of its own.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from copied_tree import answers_in, copy_tree

FEATURES = "optimizer/features"
EDITS = {
    "from optimizer.features.offline.feature import OFFLINE\n": (
        "from optimizer.features.mirrored.feature import MIRRORED\n"
        "from optimizer.features.offline.feature import OFFLINE\n"
    ),
    "    PLACES,\n": "    PLACES,\n    MIRRORED,\n",
}
"""What is edited in the table of features."""
FIELD_EDITS = {
    "from optimizer.features.offline.fields import OfflineFields\n": (
        "from optimizer.features.mirrored.fields import MirroredField\n"
        "from optimizer.features.offline.fields import OfflineFields\n"
    ),
    "class ServerFeatureFields(\n": "class ServerFeatureFields(\n    MirroredField,\n",
}
"""What is edited in the table of their fields."""


def answered(copy: Path, systems: int) -> dict[str, Any]:
    edits = {f"{FEATURES}/table.py": EDITS, f"{FEATURES}/fields.py": FIELD_EDITS}
    copy_tree(copy, {"mirrored": f"{FEATURES}/mirrored"}, edits)
    return answers_in(copy, "mirrored_answers.py", [str(systems)])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answered(tmp_path_factory.mktemp("copy"), 4)


@pytest.mark.slow
def test_plans_with_twins_are_those_of_enumeration(answers: dict[str, Any]) -> None:
    assert answers["faults"] == []


def test_twins_are_pools_with_a_role_that_cost_and_carry_nothing(answers: dict[str, Any]) -> None:
    plan = answers["plan"]
    (own,), twins = (
        [pool for pool in plan["allocations"]["s"] if ("role" in pool) is is_twin]
        for is_twin in (False, True)
    )
    assert {pool["role"] for pool in twins} == {"twin"}
    assert sum(pool["numReplicas"] for pool in twins) == own["numReplicas"]
    assert {pool["arrivalRateRpm"] for pool in twins} == {0.0}
    pools = [pool for mine in plan["allocations"].values() for pool in mine]
    assert plan["totalCostCentsPerH"] == pytest.approx(sum(pool["costCentsPerH"] for pool in pools))
    used = {item["type"]: item["used"] for item in plan["capacity"]}
    assert sum(used.values()) == sum(pool["numReplicas"] for pool in pools)


def test_every_false_leaf_of_twins_is_found(answers: dict[str, Any]) -> None:
    assert answers["believed"] == []


def test_features_that_were_not_tried_together_are_refused(answers: dict[str, Any]) -> None:
    of_queue, of_route = answers["refusals"]
    assert of_queue[0] == (
        "servers[0].mirrored: it is not known to work with sharedQueue; remove it, or sharedQueue"
    )
    assert "servers[0].mirrored: it is not known to work with route 'r'; remove it, or route 'r'" in of_route


@pytest.mark.parametrize("command", ["solve", "compare", "report", "explain"])
def test_tables_show_twins_with_their_role(command: str, answers: dict[str, Any]) -> None:
    assert "twin" in answers["texts"][command]


@pytest.mark.parametrize("command", ["simulate", "sweep", "replay"])
def test_studies_take_the_feature_as_it_is(command: str, answers: dict[str, Any]) -> None:
    assert answers["texts"][command]


def test_twins_have_deployments(answers: dict[str, Any]) -> None:
    found = [
        (item["metadata"]["name"], item["spec"]["replicas"])
        for item in yaml.safe_load_all(answers["texts"]["manifests"])
        if item["kind"] == "Deployment"
    ]
    pools = answers["plan"]["allocations"]["s"]
    wanted = {(f"s-{pool['accelerator'].lower()}", pool["numReplicas"]) for pool in pools}
    assert wanted <= set(found)


@pytest.mark.slow
def test_sixty_plans_with_twins_are_those_of_enumeration(tmp_path: Path) -> None:
    assert answered(tmp_path, 60)["faults"] == []
