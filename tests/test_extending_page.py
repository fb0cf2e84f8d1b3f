"""The page about extensions shows the code that the tests of extensions run."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from extending_page import BLOCK, PAGE, ROOT, SITE, completed, filled
from parsed_sources import parsed

EXAMPLES = (
    "rack_slots.py",
    "mirrored/*.py",
    "streams/*.py",
)
"""Files that a reader of the page copies into the packages."""


def classes(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the names of all classes."""
    for path in paths:
        nodes = ast.walk(parsed(path))
        yield from (node.name for node in nodes if isinstance(node, ast.ClassDef))


def test_the_blocks_are_those_of_the_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {block[1] for block in BLOCK.findall(page)} | {block[0] for block in SITE.findall(page)} >= {
        "tests/test_a_new_feature.py",
        "tests/test_a_new_kind.py",
        "tests/test_a_new_law.py",
        "tests/test_a_new_limit.py",
    }
    assert page == filled(page), "python tests/tools/extending_page.py"
    assert "class ToyLaw(" in completed(page)


@pytest.mark.slow
def test_class_names_of_examples_are_new() -> None:
    """`test_architecture` allows one definition of each name, also for a reader of the page."""
    copied = Counter(classes(path for part in EXAMPLES for path in (ROOT / "tests").glob(part)))
    there = {*classes(path for part in ("optimizer", "rest_server") for path in (ROOT / part).rglob("*.py"))}
    assert max(copied.values()) == 1
    assert not there & {*copied}
