"""The reference page says what the program says of itself."""

import re
import sys
from pathlib import Path

import pytest
from command_help import help_of
from reference_page import SAME, Tables, completed, generated

from optimizer.attribute_docs import attribute_docs
from optimizer.candidates import RejectionReason
from optimizer.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from 3.13 on, argparse writes options another way")
def test_the_generated_parts_are_current() -> None:
    assert generated(PAGE) == PAGE, "run python tests/tools/reference_page.py"
    assert {name for name in COMMANDS if f"<!-- help: {name} -->" not in PAGE} == set()


@pytest.mark.slow
def test_the_site_shows_every_flag_of_every_command() -> None:
    page = completed(PAGE)
    missing = [
        (name, flag)
        for name in COMMANDS
        for flag in re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", help_of(name), re.MULTILINE)
        if flag not in page.partition(f"usage: inferplan {name} ")[2].partition("```")[0]
    ]
    assert missing == []


def test_every_document_has_a_table_on_the_page() -> None:
    tables = Tables(PAGE)
    assert len(tables.documents) > 100
    page = completed(PAGE)
    without = tables.documents.keys() - SAME.keys() - {*tables.marked}
    missing = sorted(name for name in without if f"\n#### {name}\n" not in page)
    assert not missing, f"docs/reference.md lacks a comment for the fields of {', '.join(missing)}"


def test_every_field_has_a_meaning() -> None:
    documents = Tables(PAGE).documents.values()
    fields = [(model, name) for model in documents for name in model.model_fields]
    assert [(model.__name__, name) for model, name in fields if not attribute_docs(model).get(name)] == []


def test_the_page_names_every_reason() -> None:
    assert {reason.label for reason in RejectionReason if f"`{reason.label}`" not in PAGE} == set()
    for reason in ("capacity", "solver_stopped", "no_candidate"):
        assert f"`{reason}`" in PAGE
