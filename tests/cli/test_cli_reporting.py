"""The commands report and plot: what they write, and what they say where there is nothing to show."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, server
from commands import ROOT, Answer, Run, is_one_line

from optimizer import __version__, load_system, make_report, render_report
from optimizer.cli import reporting
from optimizer.render.pages import PageMetadata
from optimizer.studies.figures.making import FIGURES

SMALL = str(ROOT / "specs" / "small")
LARGE = str(ROOT / "specs" / "large")


def write(folder: Path, source: dict[str, Any]) -> str:
    path = folder / "system.json"
    path.write_text(json.dumps(source))
    return str(path)


def test_the_help_names_every_kind_of_the_library() -> None:
    assert tuple(reporting.PLOTS) == FIGURES


@pytest.mark.slow
def test_report_writes_what_the_library_returns(run: Run, tmp_path: Path) -> None:
    names = {"html": "-o", "markdown": "--markdown", "csv": "--csv"}
    files = [part for name, flag in names.items() for part in (flag, tmp_path / name)]
    assert run("report", SMALL, "--unlimited", *files) == Answer(0, "", "")
    system = load_system(SMALL).with_options(unlimited=True)
    report, origin = make_report(system), PageMetadata(__version__, "small")
    for name in names:
        assert (tmp_path / name).read_text(encoding="utf-8") == render_report(report, system, name, origin)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["-o", "page.pdf"], "-o: page.pdf: the page is HTML; the name must end in .html or .htm"),
        (["-o", "page.html", "--markdown", "page.html"], "page.html: given for two formats of the report"),
        (["--csv", "-"], "-: only input is read from -"),
    ],
)
def test_report_loses_no_file_and_surprises_nobody(
    run: Run, flags: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    is_one_line(run("report", one, *flags), f"inferplan: error: {problem}")
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def one(tmp_path: Path) -> str:
    """The document of a single server."""
    return write(tmp_path, document([server("s")], [accelerator("A")], {"A": 9}))


@pytest.mark.slow
def test_report_without_a_file_prints_markdown(run: Run, one: str) -> None:
    system = load_system(one)
    text = render_report(make_report(system), system, "markdown", PageMetadata(__version__, "system.json"))
    assert run("report", one).out == text


def test_report_takes_the_load_of_a_file(run: Run, tmp_path: Path, one: str) -> None:
    (tmp_path / "load.csv").write_text("server,arrivalRate\ns,0\n")
    assert "| s | gold | m | idle |" in run("report", one, "--load", tmp_path / "load.csv").out


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf", "SVG"])
def test_plot_writes_the_format_of_the_files_name(run: Run, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"figure.{suffix}"
    assert run("plot", "types", SMALL, "-o", path).status == 0
    begin = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix.lower()]
    assert path.read_bytes().startswith(begin)


def test_plot_of_a_server_takes_the_changed_load(run: Run) -> None:
    found = run("plot", "cost", SMALL, "--server", "Free-llama_13b", "--scale", "2", "--json").json
    assert found["panels"][0]["guides"][0] == {"name": "load", "value": 480.0, "axis": "x"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["cost", SMALL, "-o", "x.svg"], "server: not given; name one of Bronze-granite_13b, "),
        (["cost", SMALL, "-o", "x.svg", "--server", "Free-llama"], "did you mean 'Free-llama_"),
        (["latency", SMALL, "-o", "x.svg", "--server", "Free-llama_13b", "--accelerator", "B"], "'B' does"),
        (["cost", SMALL, "--server", "Free-llama_13b"], "-o: missing; name the file to write"),
        (["plan", SMALL, "-o", "x.gif"], "the name must end in one of .svg, .png, .pdf"),
        (["plan", SMALL, "-o", "x.svg", "--server", "Free-llama_13b"], "shows all servers; remove it"),
        (["plan", SMALL, "-o", "no/such/x.svg"], "cannot be written: no such file"),
        (["plan", "no-such-folder", "-o", "x.svg"], "no-such-folder"),
        (["plan", SMALL, "-o", "x.svg", "--mixed", "--solver", "greedy"], "--mixed"),
    ],
)  # fmt: skip
def test_plot_says_what_is_wrong_in_one_line(
    run: Run, line: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    is_one_line(run("plot", *line), message)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_report_says_what_is_wrong_in_one_line(run: Run, tmp_path: Path, one: str) -> None:
    is_one_line(run("report", one, "-o", tmp_path), str(tmp_path))
    is_one_line(run("report", one, "-o", tmp_path / "no" / "x.html"), "no such file")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "epoch", "date"),
    [
        (["--date", "1 May 2026"], "", " as of 1 May 2026."),
        ([], "1700000000", " as of 2023-11-14."),
        (["--date", "today"], "1700000000", " as of today."),
        ([], "", " from small."),
        ([], "soon", " from small."),
    ],
)
def test_the_date_of_a_report_is_given_and_never_looked_up(
    run: Run, flags: list[str], epoch: str, date: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert run("report", SMALL, "--brief", *flags).out.splitlines()[2].endswith(date)
