"""What the program answers for 48 documents is what is stored: whatever changes must be meant."""

from pathlib import Path

import pytest

from recorder import commands
from recorder.brief import BRIEF, ROOT, STORED, answered, changed
from recorder.comparing import render
from recorder.recording import documents_of, names_in

DOCUMENTS = documents_of(ROOT)
AGAIN = "If that is meant, record anew: python tests/tools/recorder store"


@pytest.mark.parametrize("name", BRIEF)
def test_answers_are_as_recorded(name: str, tmp_path: Path) -> None:
    fresh = answered(name, tmp_path)
    found = changed(name, fresh)
    shown = "\n".join(render(found, {name: fresh["document"]}))
    assert not found, f"{len(found)} answers differ from the recording:\n{shown}\n{AGAIN}"


def test_the_stored_recording_is_complete_and_small() -> None:
    assert names_in(STORED) == sorted(BRIEF)
    assert len(BRIEF) == 48
    assert sum(path.stat().st_size for path in STORED.iterdir()) < 2**20


def test_the_brief_documents_are_asked_every_question() -> None:
    asked = {question for questions in BRIEF.values() for question in questions}
    assert asked >= set(commands.SMALL)


def test_brief_questions_are_those_of_their_documents() -> None:
    for name, questions in BRIEF.items():
        assert set(questions) <= set(DOCUMENTS[name].questions), name


def test_there_are_360_documents_of_every_kind() -> None:
    assert len(DOCUMENTS) >= 360
    kinds = {name.partition("-")[0] for name in DOCUMENTS}
    assert {name.partition("-")[0] for name in BRIEF} <= kinds
