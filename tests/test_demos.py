"""Every demo runs and prints what the .out file beside it holds: what they show cannot rot."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT
from notes import besides_compiling

from optimizer.cli.main import main

LIVE = {"loop"}
"""Demos on the clock of the machine, with other numbers in every run: tests/rest_server/test_loop_live.py."""
DEMOS = [path for path in sorted((ROOT / "demos").glob("*.py")) if path.stem not in LIVE]
EXAMPLES = ("unlimited", "unlimited_load_change", "limited", "limited_load_change")


def test_there_are_demos() -> None:
    assert len(DEMOS) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.stem)
def test_the_demo_prints_what_its_out_file_holds(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(demo)])
    runpy.run_path(str(demo), run_name="__main__")
    out, err = capsys.readouterr()
    assert besides_compiling(err) == ""
    assert out == demo.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_demo_is_a_program() -> None:
    demo = ROOT / "demos" / "unlimited.py"
    run = subprocess.run([sys.executable, str(demo)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (demo.with_suffix(".out").read_text(encoding="utf-8"), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_that_an_example_names_prints_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = ROOT / "demos" / f"{name}.py"
    command = re.search("As one command: inferplan (.*)", demo.read_text(encoding="utf-8"))
    assert command is not None
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command[1])) == 0
    # The command adds only its last line, which names the next command.
    assert capsys.readouterr().out.startswith(demo.with_suffix(".out").read_text(encoding="utf-8"))
