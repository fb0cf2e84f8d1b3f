"""The README and the overview tell the truth; `test_page_commands` runs what they show."""

import re
import shlex

import pytest
from doc_pages import ROOT, blocks, read_page

from optimizer import load_system
from optimizer.cli.main import main
from optimizer.profiles.catalogue import load_catalogue

README = (ROOT / "README.md").read_text(encoding="utf-8")
OVERVIEW = read_page("index.md")


def commands(page: str) -> list[list[str]]:
    """Return the arguments of every line of a page that begins with ``inferplan``."""
    lines = [
        line
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line and line[0] == "inferplan"]


def test_there_are_exactly_two_set_up_commands() -> None:
    setup = [block for block in blocks(README) if block.section == "Set up"]
    assert [block.language for block in setup] == ["sh", "sh"]
    solved, tested = (block.text.strip() for block in setup)
    assert "\n" not in solved
    assert "\n" not in tested
    for command in (solved, tested):
        assert command.startswith("python3 -m venv .venv && ")
        assert "pip install" in command
    assert solved.endswith("inferplan solve specs/gpus.yaml")
    assert "pytest" in tested
    assert "[dev]" in tested


def test_what_the_readme_writes_is_ignored_by_git() -> None:
    written = {*re.findall(r"(?:-o|init) (\w+\.\w+)", README)}
    assert written >= {"fleet.yaml", "fleet.html"}
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {f"/{name}" for name in written} <= {*ignored}


def test_the_overview_shows_everyday_commands() -> None:
    assert {line[0] for line in commands(OVERVIEW)} >= {"solve", "candidates", "convert", "schema"}


def test_the_first_picture_shows_cards_that_people_know() -> None:
    """It is made by a command of the page of pictures, from a sample whose cards are in the catalogue."""
    picture = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)[0]
    assert f"({picture.removeprefix('docs/')})" in OVERVIEW
    page = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")
    (source,) = re.findall(rf"^inferplan plot targets (\S+) -o {re.escape(picture)}$", page, re.MULTILINE)
    kinds = {item.type for item in load_system(ROOT / source).accelerators.values()}
    assert kinds == {"A100", "H100", "H200", "L40S"}
    for kind in kinds:
        assert load_catalogue().accelerator(kind).name.startswith(kind)


def test_every_flag_that_both_pages_name_exists(capsys: pytest.CaptureFixture[str]) -> None:
    text = ""
    for command in sorted({line[0] for page in (README, OVERVIEW) for line in commands(page)}):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text += capsys.readouterr().out
    shown = [block.text for page in (README, OVERVIEW) for block in blocks(page) if block.section != "Set up"]
    shown = re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(shown))
    assert shown
    assert not [flag for flag in shown if flag not in text]
