"""Changes to a document: to an address and back, to the document, undone. Differences of tables."""

import pickle
from pathlib import Path

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from optimizer import System, load_system
from optimizer.errors import SpecError
from rest_server.web.changes import ChangeError, Changes, Steps, read_query
from rest_server.web.shown import Table, TableCell, row_differences, signed_text
from rest_server.web.workspace import Workspace

KEYS = st.sampled_from(["load", "load:a&b=c", "count:H100", "cost:4x A100", "ttft:Premium/m 1", "policy"])
CHANGES = st.dictionaries(KEYS, st.text(max_size=12), max_size=6).map(lambda given: Changes(given=given))


@pytest.fixture(scope="module")
def small(specs: Path) -> System:
    return load_system(specs / "small")


@given(CHANGES, st.sampled_from(["sample:small", "file"]))
def test_an_address_holds_the_changes(changes: Changes, source: str) -> None:
    found, read = read_query(changes.query(source))
    assert (found, dict(read.given)) == (source, dict(changes.given))


@given(st.lists(CHANGES, max_size=8))
def test_undo_returns_to_every_earlier_step(path: list[Changes]) -> None:
    steps, seen = Steps(), [Changes()]
    for changes in path:
        steps = steps.then(changes)
        if changes != seen[-1]:
            seen.append(changes)
    for expected in reversed(seen):
        assert steps.now == expected
        steps = steps.undone()
    assert steps == Steps()


def test_an_invalid_change_is_replaced_by_the_last_valid_value(small: System) -> None:
    valid = Changes(given={"load": "1.1", "spares": "1"})
    steps = Steps().then(valid).then(valid.with_change("spares", "1.5"))
    with pytest.raises(ChangeError) as refused:
        steps.now.applied_to(small)
    error = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 - of a worker process
    assert (error.key, str(error)) == ("spares", str(refused.value))
    kept = steps.without_invalid(error.key, valid)
    assert kept == Steps().then(valid)  # no step of its own for undo
    assert Steps(now=Changes(given={"spares": "x"})).without_invalid("spares", Changes()) == Steps()


def test_quick_changes_of_one_key_are_one_step() -> None:
    workspace = Workspace(FastAPI(), None, None)
    for key, value in (("load", "1.1"), ("count:G2", "4"), ("count:G2", "40"), ("count:G2", "400")):
        workspace.change(key, value)
    workspace.undo()
    assert workspace.changes.given == {"load": "1.1"}
    workspace.change("count:G2", "5")
    workspace.undo()
    assert workspace.changes.given == {"load": "1.1"}
    workspace.undo()
    assert workspace.changes.given == {}


def test_changes_are_those_of_the_document(small: System) -> None:
    before = small.to_spec()
    given = {
        "load": "2", "load:Free-llama_70b": "0.5", "count:G2": "8", "cost:G2": "150", "budget": "9000",
        "targets": "0.5", "itl:Premium/llama_13b": "77", "policy": "None", "mixed": "yes",
        "cards": "unlimited",
    }  # fmt: skip
    spec = Changes(given=given).applied_to(small).to_spec()
    assert small.to_spec() == before, "the document itself stays"
    assert Changes().applied_to(small) is small
    changed = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    loads = {item["name"]: item["currentAlloc"]["load"]["arrivalRate"] for item in changed["servers"]}
    assert (loads["Free-llama_70b"], loads["Free-llama_13b"]) == (240, 480)
    assert {item["type"]: item["count"] for item in changed["count"]}["G2"] == 8
    assert next(item["cost"] for item in changed["accelerators"] if item["name"] == "G2") == 150
    targets = {item["name"]: item["modelTargets"] for item in changed["serviceClasses"]}
    premium = {item["model"]: item for item in targets["Premium"]}
    assert premium["llama_13b"]["slo-itl"] == 77
    assert premium["llama_70b"]["slo-itl"] == 40
    options = changed["optimizer"]
    assert options["saturationPolicy"] == "None"
    assert options["heterogeneous"] is options["unlimited"] is options["milpSolver"] is True
    assert options["budget"] == 9000


def test_targets_apply_to_a_percentile_or_to_means(specs: Path) -> None:
    system = load_system(specs / "gpus.yaml")
    for text, percentile in (("95", 95.0), ("mean", None)):
        found = Changes(given={"percentile": text}).applied_to(system)
        assert {target.percentile for target in found.targets.values()} == {percentile}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("load", "many"), ("load", "-1"), ("load", "nan"), ("load:nobody", "1"), ("count:none", "1"),
        ("cost:G2", "<b>"), ("ttft:none/none", "1"), ("policy", "Other"),
        ("constructor", "1"), ("mixed:x", "yes"), ("gap", "1"), ("budget", "1 kg"), ("headroom", "nan"),
        ("spares", "0.5"), ("count:G2", "inf"), ("count", "1"),
    ],
)  # fmt: skip
def test_a_wrong_change_is_named(small: System, key: str, text: str) -> None:
    with pytest.raises(SpecError, match=r"^[a-z]+(:[^:]+)?: "):
        Changes(given={key: text}).applied_to(small)


def test_an_address_with_too_many_changes_is_refused() -> None:
    with pytest.raises(SpecError, match="more than the limit"):
        read_query("&".join(f"load:{i}=1" for i in range(2_000)))


def test_differences_follow_the_names_of_rows() -> None:
    def shown(*rows: tuple[str, float]) -> Table:
        cells = tuple((TableCell(name, name), TableCell(f"{value:g}", value)) for name, value in rows)
        return Table("t", "T", (), ("server", "cost [USD/h]"), (False, True), cells, ())

    before = shown(("a", 1.0), ("b", 2.0))
    assert row_differences(shown(("b", 5.0), ("new", 9.0), ("a", 1.0)), before) == [{1: "+3"}, {}, {}]
    assert row_differences(before, None) == [{}, {}]


@pytest.mark.parametrize(
    ("difference", "texts", "shown"),
    [
        (54.4, ("183.60 USD/h", "129.20 USD/h"), "+54.40"),
        (-2.0, ("8 of 10 servers", "10 of 10 servers"), "-2"),
        (1234.5, ("3,848", "2,613.5"), "+1,234.5"),
        (0.001, ("1.00", "1.00"), ""),
    ],
)
def test_differences_have_the_decimals_of_values(
    difference: float, texts: tuple[str, str], shown: str
) -> None:
    assert signed_text(difference, texts) == shown


def test_the_difference_of_shares_is_in_percentage_points() -> None:
    def shown(share: float) -> Table:
        cells = (TableCell("a", "a"), TableCell(f"{share:.0%}", share))
        return Table("t", "T", (), ("server", "util"), (False, True), (cells,), ())

    assert row_differences(shown(0.40), shown(0.35)) == [{1: "+5 pp"}]
