"""Everything that docs/compatibility.md has promised once is still there."""

import json

import pytest
from doc_pages import ROOT, read_page, table
from promise import FILE, keys, promise

PROMISED = json.loads(FILE.read_text("utf-8"))


@pytest.fixture(scope="module")
def today() -> dict[str, list[str]]:
    return promise()


@pytest.mark.parametrize("part", PROMISED)
def test_nothing_that_was_promised_vanishes(part: str, today: dict[str, list[str]]) -> None:
    """What is new belongs into the file, too: run ``python tests/tools/promise.py``."""
    assert today[part] == PROMISED[part]


def test_keys_have_paths() -> None:
    """Lists, mappings and alternatives are entered; a document within itself is entered once."""
    node = {
        "properties": {
            "name": {"type": "string"},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            "by": {"additionalProperties": {"anyOf": [{"$ref": "#/$defs/Leaf"}, {"type": "null"}]}},
        }
    }
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node, "Leaf": {"properties": {"x": {}}}}}
    assert keys(schema) == ["by", "by.*.x", "name", "parts"]


def test_the_page_names_the_test_of_each_promise() -> None:
    for row in table(read_page("compatibility.md"), "kept"):
        for file in row[-1].split(", "):
            assert (ROOT / file.strip("`")).exists(), file
