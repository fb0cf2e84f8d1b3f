"""Where values stand: the same lines by both formats, found in the way in which people count."""

import json

import pytest

from optimizer.schema.files import WRAPPERS
from optimizer.schema.positions import Location, duplicate_key, find_positions

YAML = """\
# a comment
system:
  serverData:
    Servers:
      - name: s
        currentAlloc: {load: {arrivalRate: 3}}
      - {name: "t, [x]", model: m}
  optimizerData:
    optimizer:
      optimizer: {gap: 0}
count:
- type: A
  count: 4
"""
JSON = """\
{"system": {
  "serverData": {
    "Servers": [
      {"name": "s\\\\",
        "currentAlloc": {"load": {"arrivalRate": 3}}},
      {"name": "t, [x]", "model": "m"}]},
  "optimizerData": {
    "optimizer": {
      "optimizer": {"gap": 0}}}},
"count": [
  {"type": "A",
   "count": 4}]}
"""
PLACES: dict[Location, tuple[tuple[int, int], tuple[int, int]]] = {
    ("servers",): ((4, 5), (3, 5)),
    ("servers", 0): ((5, 9), (4, 7)),
    ("servers", 0, "currentAlloc", "load", "arrivalRate"): ((6, 31), (5, 35)),
    ("servers", 1, "model"): ((7, 26), (6, 26)),
    ("optimizer", "gap"): ((10, 19), (9, 21)),
    ("count", 0, "count"): ((13, 3), (12, 4)),
}


@pytest.mark.parametrize("location", PLACES)
def test_keys_and_items_are_found_in_both_formats(location: Location) -> None:
    assert json.loads(JSON)
    for text, json_only, place in (
        (YAML, False, PLACES[location][0]),
        (JSON, True, PLACES[location][1]),
    ):
        assert find_positions(text, [location], WRAPPERS, json_only=json_only) == {location: place}
        assert find_positions(text, PLACES, WRAPPERS, json_only=json_only)[location] == place


@pytest.mark.parametrize(("text", "json_only"), [(YAML, False), (JSON, True)])
def test_what_is_not_there_stands_where_it_should(text: str, json_only: bool) -> None:  # noqa: FBT001  a parameter
    missing: Location = ("servers", 1, "class")
    item: Location = ("servers", 1)
    found = find_positions(text, [missing, item], WRAPPERS, json_only=json_only)
    assert found[missing] == found[item]


def test_the_scan_ends_where_nothing_more_can_be_found() -> None:
    found = find_positions(
        '{"servers": [{"nam": 1}, ' + "garbage " * 9, [("servers", 0, "name")], (), json_only=True
    )
    assert found == {("servers", 0, "name"): (1, 14)}


def test_the_first_key_that_occurs_twice_is_found() -> None:
    assert duplicate_key('{"a": {"b": "b", "c": ["b", {"b": 1}]},\n "d": 1, "a": 2}') == ("a", (2, 10))
    assert duplicate_key('[{"a": 1}, {"a": 2}]') is None
