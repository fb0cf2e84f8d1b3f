"""inferplan explain: the library's answer on the command line, and one clear line for bad input."""

import json
from pathlib import Path

import pytest
from builders import accelerator, document, server, service_class
from commands import Run, is_one_line


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


def test_one_server_is_explained_in_depth(run: Run, path: Path) -> None:
    out = run("explain", path, "--server", "b").out
    assert "b: m for class gold" in out
    assert "Where it can run" in out


def test_a_load_snapshot_is_what_is_explained(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("server,arrivalRate\na,0\nb,0\n", encoding="utf-8")
    out = run("explain", path, "--load", tmp_path / "loads.csv").out
    assert out.count("idle") == 2
    assert out.startswith(
        "0.00 cents/h\nAll 2 servers served in full. Proved: no plan with the cards that exist costs"
    )


def test_a_misspelt_server_is_one_line_with_the_nearest_name(run: Run, path: Path) -> None:
    is_one_line(run("explain", path, "--server", "B"), "inferplan: error: server: 'B' does not exist")
