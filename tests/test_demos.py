"""Every demo runs and prints what the .out file beside it holds: what they show cannot rot."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMOS = sorted((Path(__file__).parent.parent / "demos").glob("*.py"))


def test_there_are_demos() -> None:
    assert len(DEMOS) >= 5


@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.stem)
def test_the_demo_prints_what_its_out_file_holds(demo: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(demo)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.stdout == demo.with_suffix(".out").read_text(encoding="utf-8")
