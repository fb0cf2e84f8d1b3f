"""inferplan explain: the library's answer on the command line, and one clear line for bad input."""

import json
from pathlib import Path

import pytest
from builders import accelerator, document, server, service_class

from optimizer import explain, load_system
from optimizer.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with two servers on two accelerators."""
    classes = [service_class("gold", itl=12)]
    catalogue = [accelerator("A0"), accelerator("A1", cost=25.0)]
    source = document(
        [server("a", 900.0), server("b")], catalogue, {"A0": 20, "A1": 20}, classes=classes, gap=0.0
    )
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps(source), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--unlimited"], {"unlimited": True}),
        (["--mixed", "--gap", "0.01"], {"heterogeneous": True, "gap": 0.01}),
        (
            ["--batch-sizing", "optimal", "--time-limit", "9"],
            {"batch_sizing": "optimal", "time_limit_s": 9.0},
        ),
    ],
)
def test_json_is_what_the_library_returns(
    capsys: pytest.CaptureFixture[str], path: Path, flags: list[str], options: dict[str, object]
) -> None:
    assert main(["explain", str(path), "--json", *flags]) == 0
    out, err = capsys.readouterr()
    assert out == explain(load_system(path).with_options(**options)).to_json() + "\n"
    assert err == ""


def test_one_server_is_explained_in_depth(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    assert main(["explain", str(path), "--server", "b"]) == 0
    out = capsys.readouterr().out
    assert "b: m for class gold" in out
    assert "Where it can run" in out


def test_a_load_snapshot_is_what_is_explained(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    loads = tmp_path / "loads.csv"
    loads.write_text("server,arrivalRate\na,0\nb,0\n", encoding="utf-8")
    assert main(["explain", str(path), "--load", str(loads)]) == 0
    out = capsys.readouterr().out
    assert out.count("idle") == 2
    assert out.startswith("0.00 cents/h   limited plan, 2 of 2 servers served in full")


def test_a_misspelt_server_is_one_line_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    assert main(["explain", str(path), "--server", "B"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("inferplan: error: server: 'B' does not exist")
