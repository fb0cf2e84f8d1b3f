"""The reference page says what the program says of itself."""

import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from reference_page import generated

from optimizer import Explanation
from optimizer.candidates import RejectionReason
from optimizer.cli.main import COMMANDS
from optimizer.plan import Plan
from optimizer.schema import SystemSpec
from optimizer.studies.comparison.comparison_document import Comparison
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.report import Report
from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation
from optimizer.studies.sweep.sweep_document import Sweep

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from 3.13 on, argparse writes options another way")
def test_the_generated_parts_are_current() -> None:
    assert generated(PAGE) == PAGE, "run python tests/reference_page.py"
    assert {name for name in COMMANDS if f"usage: inferplan {name} " not in PAGE} == set()


def wire_names(schema: dict[str, object]) -> set[str]:
    names: set[str] = set()
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    for model in (schema, *definitions.values()):
        names |= set(model.get("properties", {}))
    return names


@pytest.mark.parametrize(
    "document", [SystemSpec, Plan, Comparison, Explanation, Report, Figure, Simulation, RepairedPlan, Sweep]
)
def test_the_page_names_every_field(document: type[BaseModel]) -> None:
    names = wire_names(document.model_json_schema(by_alias=True))
    assert len(names) > 20
    missing = sorted(name for name in names if f"`{name}`" not in PAGE)
    assert not missing, f"docs/reference.md does not describe {', '.join(missing)}"


def test_the_page_names_every_reason() -> None:
    assert {reason.label for reason in RejectionReason if f"`{reason.label}`" not in PAGE} == set()
    for reason in ("capacity", "solver_stopped", "no_candidate"):
        assert f"`{reason}`" in PAGE
