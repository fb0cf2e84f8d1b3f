"""The pictures of the documentation are what their commands make, on the page and in the repository."""

import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from doc_pages import ROOT, read_page

from optimizer.cli.main import main
from optimizer.cli.reporting import PLOTS

PAGE = read_page("pictures.md")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^inferplan .*$", PAGE, re.MULTILINE)]
SLOW = {
    "batch", "distribution", "limited", "limited-load-change", "multi-model", "multi-model-latency",
    "serving-fleet", "serving-fleet-targets", "targets", "unlimited", "unlimited-load-change",
    "batch-limit",
}  # fmt: skip
"""Pictures that take long, each of a kind that another shows, or of a long computation."""
NUMBER = re.compile(r"[\d.,–−e-]+")


def words(picture: Path) -> list[str]:
    """Return the texts of a picture, but for numbers on axes, which versions of the library place anew."""
    texts = ("".join(node.itertext()) for node in ET.parse(picture).iter() if node.tag.endswith("}text"))  # noqa: S314
    return sorted(text for text in texts if not NUMBER.fullmatch(text))


def checked(line: list[str]) -> Any:
    """Return a command as a case; one that takes long is checked with the slow ones."""
    picture = Path(line[-1]).stem
    return pytest.param(line, id=picture, marks=[pytest.mark.slow] if picture in SLOW else [])


def test_the_page_shows_every_picture_below_its_command() -> None:
    made = [Path(line[line.index("-o") + 1]) for line in COMMANDS]
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE)
    assert [str(path) for path in made] == [f"docs/{path}" for path in shown]
    kept = {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert {path.name for path in made} <= kept
    assert all(f"pictures/{name})" in pages for name in kept)
    assert {"plan", *PLOTS} - {line[1] for line in COMMANDS} == {
        "load",
        "assignment",
        "types",
        "nodes",
    }


def test_ten_states_of_the_page_are_kept() -> None:
    shots = [*(ROOT / "docs" / "pictures" / "page").iterdir()]
    assert len(shots) == 10
    assert all(path.suffix == ".png" and path.stat().st_size < 200_000 for path in shots)


@pytest.mark.slow
@pytest.mark.parametrize("line", [*map(checked, COMMANDS)])
def test_the_command_makes_the_picture(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(line) == 0
    picture = Path(line[-1])
    assert words(tmp_path / picture) == words(ROOT / picture)
    assert len(words(ROOT / picture)) > 4
    assert (ROOT / picture).stat().st_size < 300_000
