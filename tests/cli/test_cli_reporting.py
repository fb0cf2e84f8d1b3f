"""The commands report and plot: what they write, and what they say where there is nothing to show."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from builders import accelerator, document, server, service_class
from notes import besides_compiling

from optimizer import __version__, load_system, make_figure, make_report, render_report, scale_loads, solve
from optimizer.cli import reporting
from optimizer.cli.main import main
from optimizer.render.pages import PageMetadata
from optimizer.studies.figures.kinds import KINDS, PLAN_KINDS

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "specs" / "small")
LARGE = str(ROOT / "specs" / "large")


def write(folder: Path, source: dict[str, Any]) -> str:
    path = folder / "system.json"
    path.write_text(json.dumps(source))
    return str(path)


def test_the_help_names_every_kind_of_the_library() -> None:
    assert tuple(reporting.KINDS) == KINDS


def test_report_writes_what_the_library_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"html": "-o", "markdown": "--markdown", "csv": "--csv"}
    files = [part for name, flag in names.items() for part in (flag, str(tmp_path / name))]
    assert main(["report", SMALL, "--unlimited", *files]) == 0
    assert capsys.readouterr() == ("", "")
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
    flags: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(tmp_path, document([server("s")], [accelerator("A")], {"A": 9}))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["report", path, *flags]) == 2
    assert capsys.readouterr().err.startswith(f"inferplan: error: {problem}")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", [["explain"], ["report"], ["solve"], ["plot", "plan", "-o", "x.svg"]])
def test_a_plan_in_place_of_a_system_is_named_as_one(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = load_system(document([server("s")], [accelerator("A")], {"A": 9}))
    path = tmp_path / "plan.json"
    path.write_text(solve(system).to_json(), "utf-8")
    assert main([*command, str(path)]) == 2
    assert "this is a plan" in capsys.readouterr().err


def test_report_without_a_file_prints_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", SMALL]) == 0
    system = load_system(SMALL)
    assert capsys.readouterr().out == render_report(
        make_report(system), system, "markdown", PageMetadata(__version__, "small")
    )


def test_report_as_json_is_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", SMALL, "--json"]) == 0
    assert capsys.readouterr().out == make_report(load_system(SMALL)).to_json() + "\n"


def test_report_takes_the_load_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "load.csv").write_text("server,arrivalRate\nFree-llama_13b,0\n")
    assert main(["report", SMALL, "--load", str(tmp_path / "load.csv")]) == 0
    assert "| Free-llama_13b | Free | llama_13b | 3 | 100% | idle |" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf", "SVG"])
def test_plot_writes_the_format_of_the_files_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"figure.{suffix}"
    assert main(["plot", "types", SMALL, "-o", str(path)]) == 0
    begin = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix.lower()]
    assert path.read_bytes().startswith(begin)


def test_plot_as_json_is_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plot", "latency", SMALL, "--server", "Free-llama_13b", "--accelerator", "G2", "--json"]
    assert main(line) == 0
    expected = make_figure(load_system(SMALL), "latency", server="Free-llama_13b", accelerator="G2")
    assert capsys.readouterr().out == expected.to_json() + "\n"


def test_plot_of_a_plan_shows_the_plan_before_a_load_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plot", "servers", SMALL, "--scale", "1.1", "--json"]) == 0
    system = load_system(SMALL)
    expected = make_figure(scale_loads(system, 1.1), "servers", before=system)
    assert capsys.readouterr().out == expected.to_json() + "\n"


def test_plot_of_a_server_takes_the_changed_load(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plot", "cost", SMALL, "--server", "Free-llama_13b", "--json"]
    assert main([*line, "--scale", "2"]) == 0
    guide = json.loads(capsys.readouterr().out)["panels"][0]["guides"][0]
    assert guide == {"name": "load", "value": 480.0, "axis": "x"}


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
    line: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *line]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


def test_report_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", SMALL, "-o", str(tmp_path)]) == 2
    assert main(["report", SMALL, "-o", str(tmp_path / "no" / "x.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 2


CASES: dict[str, dict[str, Any]] = {
    "nothing fits": {"units": {"A": 0, "B": 0}},
    "no target can be met": {"units": {"A": 9, "B": 9}, "classes": [service_class("gold", itl=0.1)]},
    "everything is idle": {"units": {"A": 9, "B": 9}, "rate": 0.0},
    "one type has no units": {"units": {"A": 0, "B": 9}},
}


@pytest.mark.parametrize("case", CASES)
def test_every_command_answers_where_there_is_little_to_show(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = dict(CASES[case])
    rate = changes.pop("rate", 60.0)
    servers = [server("s", rate), server("t", rate)]
    path = write(
        tmp_path, document(servers, [accelerator("A"), accelerator("B")], changes.pop("units"), **changes)
    )
    assert main(["report", path]) == 0
    text = capsys.readouterr().out
    assert "No server runs." in text or case == "one type has no units"
    picture = tmp_path / "plan.svg"
    assert main(["plot", "plan", path, "-o", str(picture)]) == 0
    assert capsys.readouterr() == ("", "")
    assert ET.fromstring(picture.read_bytes()).tag.endswith("svg")  # noqa: S314
    for kind in KINDS[len(PLAN_KINDS) :]:
        for place in ((), ("--accelerator", "A")):
            assert main(["plot", kind, path, "--json", "--server", "s", *place]) == 0
            out, err = capsys.readouterr()
            assert besides_compiling(err) == ""
            figure = json.loads(out)
            assert figure["panels"] or figure["note"].startswith("Nothing to show: s ")


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
    flags: list[str],
    epoch: str,
    date: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert main(["report", SMALL, *flags]) == 0
    assert capsys.readouterr().out.rstrip().endswith(date)
