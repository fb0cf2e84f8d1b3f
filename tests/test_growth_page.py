"""Pictures and mistakes of the commands that the page about growth shows."""

from pathlib import Path

import pytest
from doc_pages import blocks, read_page
from slow_cases import mostly_slow

from optimizer.cli.main import main

BLOCKS = blocks(read_page("growth.md"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, language in (("fleet.yaml", "yaml"), ("day.csv", "csv")):
        (block,) = (one for one in BLOCKS if one.language == language)
        (tmp_path / name).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "endings"),
    mostly_slow(
        [("sweep fleet.yaml --vary load=1,2", "svg png pdf"), ("horizon fleet.yaml --trace day.csv", "svg")],
        1,
    ),
)
def test_pictures_json_and_csv_are_written(
    command: str, endings: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in endings.split():
        picture = folder / f"picture.{ending}"
        assert main([*command.split(), "-o", str(picture), "--json"]) == 0
        assert picture.stat().st_size > 1000
    assert capsys.readouterr().out.startswith("{")
    assert main([*command.split(), "--csv"]) == 0
    assert "cost" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sweep fleet.yaml --samples 9", "--samples: give either --load-cv or --trace"),
        ("sweep fleet.yaml --vary laod=1", "did you mean 'load'?"),
        ("horizon fleet.yaml", "--trace: give the loads by the hour, either as --trace or as --factors"),
        ("horizon fleet.yaml --trace day.csv --factors 1,2", "either as --trace or as --factors"),
        ("horizon fleet.yaml --factors 1", "--factors: at least two hours are needed"),
        ("horizon fleet.yaml --factors 1,x", "must be numbers with commas between them"),
        ("horizon fleet.yaml --trace none.csv", "none.csv"),
    ],
)
def test_mistakes_are_one_line(
    command: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.is_dir()
    try:
        status = main(command.split())
    except SystemExit as stopped:
        status = int(str(stopped.code))
    assert status == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
