"""Loads that are reported in part: no missing value has a lasting effect."""

import random
from collections.abc import Iterable

import pytest
from builders import profile
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from load_sequences import DOCUMENTS, KINDS, Kind, transitions, update_of

from optimizer.schema import Load, ModelProfile
from optimizer.stabilisation.missing_loads import MissingLoad, merged_load, missing_values
from rest_server.v1.models import LoadUpdate

PROFILES = [ModelProfile.model_validate(profile("m", "A"))]


def state(load: Load) -> str:
    """Return the state of a load by its values alone."""
    is_sized = load.out_tokens > 0 and "in_tokens" in load.model_fields_set
    if "arrival_rate_rpm" not in load.model_fields_set:
        return "sized" if is_sized else "new"
    if not load.arrival_rate_rpm:
        return "asleep" if is_sized else "idle"
    return "known" if is_sized else "unsized"


def given(update: dict[str, object]) -> dict[str, float]:
    return LoadUpdate.model_validate(update).model_dump(exclude_none=True)


def noted(load: Load, update: dict[str, object], *, runs: bool = False) -> MissingLoad | None:
    return missing_values(load, given(update), PROFILES, runs=runs)


def after(load: Load, now: str, kind: Kind) -> tuple[Load, str]:
    """Return the load and its state after a snapshot, checked against the table."""
    found = merged_load(load, given(update_of(kind)))
    then, has_note = transitions()[now, kind]
    assert state(found) == then, (now, kind)
    note = noted(found, update_of(kind))
    assert (note is not None) == (has_note or then == "unsized"), (now, kind)
    assert note is None or note.keeps_replicas == (then == "unsized")
    return found, then


def check(start: str, kinds: Iterable[Kind]) -> None:
    load, now = Load.model_validate(DOCUMENTS[start]), start
    for kind in kinds:
        load, now = after(load, now, kind)


@pytest.mark.slow
@pytest.mark.parametrize("start", DOCUMENTS)
def test_every_sequence_of_four_snapshots_follows_the_table(start: str) -> None:
    """The 9^4 sequences of the kinds of snapshots, each after a load in a document."""
    reached = [(Load.model_validate(DOCUMENTS[start]), start)]
    for length in range(1, 5):
        reached = [after(load, now, kind) for load, now in reached for kind in KINDS]
        assert len(reached) == len(KINDS) ** length


@pytest.mark.slow
@drawn(st.sampled_from(list(DOCUMENTS)), st.lists(st.sampled_from(KINDS), max_size=40))
@settings(max_examples=100)
def test_longer_sequences_follow_the_table(start: str, kinds: list[Kind]) -> None:
    check(start, kinds)


@pytest.mark.slow
def test_many_random_sequences_follow_the_table() -> None:
    """10,000 sequences of up to 30 snapshots, seed 1."""
    rng = random.Random(1)
    for _ in range(10_000):
        check(rng.choice(list(DOCUMENTS)), rng.choices(KINDS, k=rng.randint(1, 30)))


@pytest.mark.parametrize(
    ("before", "update", "after"),
    [
        ({}, {"avgInTokens": 0}, {}),
        ({}, {"arrivalRate": 60, "avgInTokens": 0}, {"arrivalRate": 60, "avgInTokens": 0}),
        ({"avgOutTokens": 9}, {"avgInTokens": 0}, {"avgOutTokens": 9}),
        (
            {"arrivalRate": 60, "avgInTokens": 5, "avgOutTokens": 9},
            {"avgInTokens": 0},
            {"arrivalRate": 60, "avgInTokens": 0, "avgOutTokens": 9},
        ),
        (
            {"arrivalRate": 60, "avgInTokens": 5, "avgOutTokens": 9},
            {"avgInTokens": 7, "avgOutTokens": 0},
            {"arrivalRate": 60, "avgInTokens": 7, "avgOutTokens": 9},
        ),
        ({"avgInTokens": 0, "avgOutTokens": 0}, {"avgOutTokens": 9}, {"avgOutTokens": 9}),
        (
            {"arrivalRate": 60},
            {"arrivalRate": None, "avgOutTokens": 4},
            {"arrivalRate": 60, "avgOutTokens": 4},
        ),
    ],
)
def test_only_lengths_that_say_something_are_stored(
    before: dict[str, object], update: dict[str, object], after: dict[str, object]
) -> None:
    found = merged_load(Load.model_validate(before), given(update))
    assert found.model_dump(by_alias=True, exclude_unset=True) == after


def test_a_note_says_what_is_missing_and_what_is_done() -> None:
    load = Load.model_validate({"arrivalRate": 60})
    found = noted(load, {})
    assert found is not None
    assert (found.values, found.keeps_replicas) == (("avgInTokens", "avgOutTokens"), True)
    assert found.detail == "avgInTokens and avgOutTokens never known; it keeps its replicas, at least one"
    load = Load.model_validate({"arrivalRate": 60, "avgInTokens": 400, "avgOutTokens": 120})
    found = noted(load, {"avgOutTokens": 0})
    assert found is not None
    assert found.values == ("avgOutTokens",)
    assert found.detail.endswith("planned for 400 input and 120 output tokens")
    assert noted(Load(), {}) is None
    found = noted(Load(), {}, runs=True)
    assert found is not None
    assert found.values == ("arrivalRate",)
