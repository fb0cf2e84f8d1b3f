"""The recorder sees what differs and nothing else: made-up recordings, and a changed copy of the program."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recorder.cleaning import headers, notes, parsed, portable
from recorder.comparing import Difference, Rules, differences, render
from recorder.recording import read_recorded, write_recorded
from recorder.stopped import Judgement

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = {"servers": [{"name": "s1"}, {"name": "s2"}]}
ANSWER: dict[str, Any] = {
    "status": 0,
    "out": {"cost": 10.0, "allocations": {"s1": [{"rate": 1.5}], "s2": []}, "detail": "a b"},
    "err": "one line\nsecond line\n",
}


def recording(**changes: Any) -> dict[str, Any]:
    return {"document": DOCUMENT, "answers": {"solve": json.loads(json.dumps(ANSWER)) | changes}}


EXACT = Rules()


def found(after: dict[str, Any], rules: Rules = EXACT) -> list[tuple[Any, ...]]:
    return [item[2:] for item in differences("d", recording(), after, rules)]


# --- what differs ------------------------------------------------------------------------------------------


def test_equal_recordings_have_no_differences() -> None:
    assert found(recording()) == []
    assert found(recording(status=0.0)) == []  # of JSON the values count


def test_a_number_differs_unless_it_is_within_the_tolerance() -> None:
    after = recording(out=ANSWER["out"] | {"cost": 10.0 + 1e-9})
    assert found(after) == [(("out", "cost"), 10.0, 10.0 + 1e-9)]
    assert found(after, Rules(tolerance=1e-9)) == []
    small, other = recording(out={"loss": 1e-11}), recording(out={"loss": 1e-11 + 1e-15})
    assert not list(differences("d", small, other, Rules(tolerance=1e-9)))
    assert list(differences("d", small, other, Rules()))
    assert list(differences("d", small, recording(out={"loss": 1.1e-11}), Rules(tolerance=1e-9)))


def test_absent_values_and_lists_of_other_lengths_differ() -> None:
    out = {"cost": 10.0, "allocations": {"s1": [], "s2": []}, "detail": "a b", "new": True}
    assert [path for path, *_ in found(recording(out=out))] == [("out", "allocations", "s1"), ("out", "new")]


def test_texts_differ_line_by_line() -> None:
    assert found(recording(err="one line\nother line\n")) == [
        (("err", "line 2"), "second line", "other line")
    ]
    assert found(recording(err="second line\n")) == [(("err", "line 1"), "one line", "(absent)")]


def test_a_tolerance_holds_for_numbers_in_texts() -> None:
    before = recording(err="cost 10.000000001 cents\n")
    after = recording(err="cost 10.000000002 cents\n")
    assert list(differences("d", before, after, EXACT))
    assert not list(differences("d", before, after, Rules(tolerance=1e-9)))


def test_words_can_be_ignored_but_not_values() -> None:
    after = recording(out=ANSWER["out"] | {"detail": "c d", "cost": 11.0}, err="other words\n")
    assert [path for path, *_ in found(after, Rules(ignore_words=True))] == [("out", "cost")]


def test_of_another_document_only_that_is_said() -> None:
    after = recording(status=3) | {"document": {"servers": [{"name": "s1"}, {"name": "s3"}]}}
    assert [item.question for item in differences("d", recording(), after, EXACT)] == ["the document itself"]


def test_differences_of_one_kind_are_shown_together() -> None:
    items = [
        Difference("d", "solve", ("out", "allocations", server, 0, "rate"), 1, 2) for server in ("s1", "s2")
    ]
    lines = list(render(items, {"d": DOCUMENT}, most=1))
    assert lines[0] == "solve: out.allocations.*.*.rate: 2 in 1 document"
    assert "    d out.allocations.s1[0].rate" in lines
    assert lines[-1] == "    … and 1 more"


# --- plans that the clock stopped --------------------------------------------------------------------------

FLEET = {
    "serviceClasses": [{"name": "gold", "priority": 1}],
    "servers": [{"class": "gold", "currentAlloc": {"load": {"arrivalRate": 1000.0}}}],
}


def judged(unserved: float, value: float) -> Judgement:
    def plan(unserved: float, value: float) -> dict[str, Any]:
        levels = {"priority 1: unserved rate": unserved, "value": value}
        return {"document": FLEET, "answers": {"levels": {"stopped": levels}}}

    judgement, before, after = Judgement(), plan(100.0, 500.0), plan(unserved, value)
    assert list(differences("d", before, after, EXACT)) == []
    judgement.add("d", before, after)
    return judgement


@pytest.mark.parametrize(("unserved", "failed"), [(90.0, False), (109.0, False), (111.0, True)])
def test_service_may_be_one_percent_of_the_load_worse(unserved: float, *, failed: bool) -> None:
    assert judged(unserved, 600.0).failed == failed
    assert len(list(judged(unserved, 600.0).lines())) == 1 + failed


@pytest.mark.parametrize(("value", "failed"), [(450.0, False), (500.4, False), (500.6, True)])
def test_the_value_of_the_same_service_may_be_a_thousandth_worse(value: float, *, failed: bool) -> None:
    assert judged(100.0, value).failed == failed


def test_documents_that_are_no_systems_are_not_judged() -> None:
    wrong = {"document": {"replicas": []}, "answers": {"solve": {"status": 2, "err": "x"}}}
    judgement = Judgement()
    judgement.add("d", wrong, wrong)
    assert not judgement.failed
    assert not list(judgement.lines())


# --- what recordings leave out -----------------------------------------------------------------------------


def test_what_depends_on_the_clock_is_dropped_by_name() -> None:
    assert parsed('{"at": "2026-01-01", "plan": [{"ageSeconds": 3, "cost": 1}]}') == {"plan": [{"cost": 1}]}
    assert headers({"etag": "x", "date": "y", "allow": "GET"}) == {"allow": "GET"}
    assert notes("inferplan: compiling x\ninferplan: note\n") == "inferplan: note\n"


def test_picture_digests_are_not_compared_on_other_machines() -> None:
    first, second = parsed("<p><svg>1</svg></p>"), parsed("<p><svg>2</svg></p>")
    assert first != second
    assert portable(first) == portable(second) == "<p>[picture]</p>"


def test_a_portable_recording_has_nine_digits() -> None:
    assert portable({"a": [1.23456789012, 7]}) == {"a": [1.23456789, 7]}
    assert portable("s1,1.23456789012,12.5,1234567890\n") == "s1,1.23456789,12.5,1234567890\n"


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    paths = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    for path in paths:
        write_recorded(recording(), path)
    assert read_recorded(paths[0]) == recording()
    assert paths[0].read_bytes() == paths[1].read_bytes()


# --- whole recordings --------------------------------------------------------------------------------------


def recorder(*argv: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tests" / "tools" / "recorder"), *argv],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_recordings_repeat_and_reveal_a_changed_formula(tmp_path: Path) -> None:
    changed = tmp_path / "tree"
    for name in ("optimizer", "rest_server", "specs"):
        shutil.copytree(ROOT / name, changed / name, ignore=shutil.ignore_patterns("__pycache__"))
    law = changed / "optimizer" / "timing" / "linear.py"
    text = law.read_text(encoding="utf-8")
    formula = "self.decode_per_request_ms * decode_steps"
    assert formula in text
    law.write_text(text.replace(formula, f"1.01 * {formula}"), encoding="utf-8")
    only = ("--only", "random-0[0-3]", "--jobs", "1")
    for i, tree in enumerate((ROOT, ROOT, changed)):
        run = recorder("record", str(tmp_path / str(i)), *only, "--tree", str(tree), hash_seed=str(i + 1))
        assert run.returncode == 0, run.stderr
    first, again, other = (str(tmp_path / str(i)) for i in range(3))
    same = recorder("compare", first, again)
    assert (same.returncode, same.stdout) == (0, "0 differences in 0 of 4 documents\n")
    different = recorder("compare", first, other)
    assert different.returncode == 1
    assert "candidates json: out.candidates.*.itlAverage" in different.stdout
