"""The simulation page's commands run as printed, with what the page itself makes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, read_page

from optimizer.cli.main import main

PAGE = read_page("simulation.md")
TRACE = re.compile(r"^python3 - <<'END' > conv\.csv\n(.*?)^END$", re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Return the arguments of every call of the program but those of clusters, which need one."""
    lines = re.findall(r"^inferplan (.+)$", PAGE, re.MULTILINE)
    return [line.split() for line in lines if "--cluster" not in line]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the samples and the trace that the page makes."""
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    script = TRACE.search(PAGE)
    assert script is not None
    with (tmp_path / "conv.csv").open("w") as trace:
        subprocess.run([sys.executable, "-c", script[1]], stdout=trace, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_file_is_read_that_the_page_does_not_make(folder: Path) -> None:
    named = [word for words in commands() for word in words if "." in word and "-o" not in words]
    assert named
    assert all((folder / word).exists() for word in named)


def test_the_trace_that_the_page_makes_is_simulated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (folder / "conv.csv").exists()
    (traced,) = (words for words in commands() if "--trace" in words)
    assert main(traced) == 0
    assert "Premium-llama_13b" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_the_page_runs(words: list[str]) -> None:
    assert main(words) == 0
