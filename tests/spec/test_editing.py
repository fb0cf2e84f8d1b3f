"""One item changed in the text of a document: it says what is wanted, and all other text stays."""

import difflib
import json
from typing import Any

import pytest

from optimizer.schema.files import section_items, text_of
from optimizer.spec.editing import with_item

FITTED: dict[str, Any] = {
    "name": "llama", "acc": "A", "accCount": 1, "maxBatchSize": 64, "queueModel": "continuous",
    "perfParms": {"alpha": 7.5, "beta": 0.25}, "provenance": {"source": "run: #1, a.csv"},
}  # fmt: skip
"""What is put in; the text of its source has signs that YAML could misread."""

BLOCK = """\
# The fleet of the café ☕, kept by hand.
accelerators:
  - {name: A,   type: A, cost: $2.50/h}   # old
  - {name: 2xA, type: A, cost: $5/h,
     multiplicity: 2}

models:
  # measured in March
  - name: llama   # the small one
    acc: A
    # vLLM limits us
    maxBatchSize: 32     # requests
    decodeParms: {alpha: 1, beta: 1}   # to be measured
    prefillParms:
      gamma: 1  # slow
      delta: 0
    # the last line of the entry

  - name: llama
    acc:    2xA
    perfParms: estimate

# What is promised.
serviceClasses:
- name: gold
  modelTargets: [{model: llama,  slo-itl: 50ms}]
"""
FLOW = """\
models: [{name: llama, decodeParms: {alpha: 1}, acc: A, prefillParms: {gamma: 1, delta: 0.5}, accCount: 1},
  {name: llama, acc: 2xA, perfParms: estimate},   # two cards
]
accelerators: [{name: A, type: A}, {name: 2xA, type: A}]
"""
LAW_FIRST = """\
Models:
- decodeParms: {alpha: 1, beta: 1}
  prefillParms: {gamma: 1, delta: 0}
  Name: llama
  ACC: A
# the end"""
WRAPPED = """\
system:
  modelData:
    models:
      - {name: other, acc: A, perfParms: estimate}  # first
      - name: llama
        acc: A
        perfParms:
          alpha: 3  # guessed
          gamma: 4
  acceleratorData: {accelerators: [{name: A, type: A}]}
"""
PRETTY = json.dumps(
    {
        "models": [{"name": "llama", "acc": "A", "decodeParms": {"alpha": 1}}],
        "count": [{"type": "é", "count": 1}],
    },
    indent=4,
)
COMPACT = '{"count":[],"models":[{"perfParms":"estimate","name":"llama","acc":"A"}]}'


def items_of(content: str, section: str) -> list[dict[str, Any]]:
    return section_items(text_of(content), section)


def entries(content: str) -> list[dict[str, Any]]:
    return items_of(content, "models")


def put(content: str, name: str, acc: str) -> str:
    """Return text with `FITTED` for a pair, as `profiles add` puts it: other keys of an old entry go."""
    items = [{key.lower(): value for key, value in item.items()} for item in entries(content)]
    place = next((i for i, item in enumerate(items) if (item["name"], item["acc"]) == (name, acc)), None)
    old = None if place is None else (place, entries(content)[place])
    return with_item(text_of(content), "models", FITTED | {"name": name, "acc": acc}, old)


def kept_lines(before: str, after: str) -> list[str]:
    """Return the lines of `before` that are gone."""
    return [line[2:] for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[:2] == "- "]


DOCUMENTS = [BLOCK, FLOW, LAW_FIRST, WRAPPED, PRETTY, COMPACT]


@pytest.mark.parametrize("acc", ["A", "2xA", "3xA"])
@pytest.mark.parametrize("content", DOCUMENTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_the_edited_entry_changes(content: str, acc: str, newline: str) -> None:
    before = content.replace("\n", newline)
    after = put(before, "llama", acc)
    found = [{key.lower(): value for key, value in item.items()} for item in entries(after)]
    others = [item for item in found if (item["name"], item["acc"]) != ("llama", acc)]
    was = [{key.lower(): value for key, value in item.items()} for item in entries(before)]
    assert others == [item for item in was if (item["name"], item["acc"]) != ("llama", acc)]
    (mine,) = (item for item in found if item not in others)
    assert mine == {key.lower(): value for key, value in (FITTED | {"acc": acc}).items()}
    assert items_of(after, "accelerators") == items_of(before, "accelerators")
    assert after.count("\n") == after.count(newline)  # ends of lines are those of the document


@pytest.mark.parametrize("content", DOCUMENTS)
def test_an_added_entry_takes_no_line_away(content: str) -> None:
    after = put(content, "llama", "3xA")
    gone = kept_lines(content, after)
    if content in {BLOCK, LAW_FIRST, WRAPPED}:
        assert gone == []
    else:  # a list on one line, or the bracket behind its last item
        assert len(gone) <= 1
    for line in content.splitlines():
        assert line.strip(" }],") in after


def test_a_changed_entry_keeps_its_comments_and_its_other_lines() -> None:
    after = put(BLOCK, "llama", "A")
    assert kept_lines(BLOCK, after) == [
        "    maxBatchSize: 32     # requests",
        "    decodeParms: {alpha: 1, beta: 1}   # to be measured",
        "    prefillParms:",
        "      gamma: 1  # slow",
        "      delta: 0",
    ]
    for comment in ("# measured in March", "# the small one", "# vLLM limits us", "# requests",
                    "    # the last line of the entry", "# What is promised."):  # fmt: skip
        assert comment in after
    inner = put(WRAPPED, "llama", "A")
    assert "          alpha: 7.5  # guessed\n" in inner
    assert "gamma: 4" not in inner


def test_an_entry_in_one_line_stays_in_one_line() -> None:
    after = put(FLOW, "llama", "A")
    assert len(after.splitlines()) == len(FLOW.splitlines())
    assert after.splitlines()[1:] == FLOW.splitlines()[1:]
    assert after.startswith("models: [{name: llama, acc: A, accCount: 1, maxBatchSize: 64,")


@pytest.mark.parametrize("section", ["", "models:\n", "models: []\n", "models:   # none yet\n"])
@pytest.mark.parametrize("rest", ["count: [{type: A, count: 1}]\n", "count: [{type: A, count: 1}]"])
def test_a_section_that_is_empty_or_missing_is_filled(section: str, rest: str) -> None:
    for content in (section + rest, f"# fleet\n{rest.strip()}\n{section}"):
        after = put(content, "llama", "A")
        assert entries(after) == [FITTED]
        assert items_of(after, "count") == items_of(content, "count")
        assert "# none yet" in after or "# none yet" not in content


def test_a_json_document_without_the_section_is_filled() -> None:
    after = put('{"count": [{"type": "A", "count": 1}]}', "llama", "A")
    assert json.loads(after) == {"count": [{"type": "A", "count": 1}], "models": [FITTED]}
