"""The sign of life: on stderr, only at a terminal, only for work that takes a while."""

import io
import sys
import threading
import time

import pytest
from patience import PATIENCE_S, until
from shown_text import Terminal

from optimizer.render import progress


def test_nothing_is_shown_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    before = threading.active_count()
    with progress.working("solving"):
        assert threading.active_count() <= before  # threads of other tests may end meanwhile
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_short_work_shows_nothing_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.PATIENCE_S == 2.0  # the work order's two seconds
    monkeypatch.setattr(progress, "PATIENCE_S", PATIENCE_S)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.working("solving"):
        pass
    assert stream.getvalue() == ""


def test_long_work_shows_what_it_does_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    before = threading.active_count()
    with progress.working("solving"):
        until(lambda: "solving" in stream.getvalue(), 0.01)
    until(lambda: threading.active_count() == before, 0.01)  # what draws ends a moment after it was told to


def test_a_count_is_shown_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress.counting("simulating") as told:
        until(lambda: "simulating" in stream.getvalue(), 0.01)
        assert "?" not in stream.getvalue().replace("\x1b[?25l", "")
        told(0, 1200)
        until(lambda: "0/1,200" in stream.getvalue(), 0.01)


def test_an_error_in_the_work_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), progress.working("dividing"):
        1 / 0  # noqa: B018
    assert threading.active_count() <= before  # threads of other tests may end meanwhile
