"""Every demo runs and prints what the .out file beside it holds: what they show cannot rot."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from optimizer.cli.main import main

ROOT = Path(__file__).parent.parent
DEMOS = sorted((ROOT / "demos").glob("*.py"))
EXAMPLES = ("unlimited", "unlimited_load_change", "limited", "limited_load_change")


def test_there_are_demos() -> None:
    assert len(DEMOS) >= 5


@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.stem)
def test_the_demo_prints_what_its_out_file_holds(demo: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(demo)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.stdout == demo.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_that_an_example_names_prints_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = ROOT / "demos" / f"{name}.py"
    command = re.search("As one command: inferplan (.*)", demo.read_text(encoding="utf-8"))
    assert command is not None
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command[1])) == 0
    assert capsys.readouterr().out == demo.with_suffix(".out").read_text(encoding="utf-8")
