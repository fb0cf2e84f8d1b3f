"""Answers in a real notebook: a kernel runs the cells, and results have the forms that notebooks show."""

import html
from typing import Any

import pytest
from doc_pages import ROOT

from optimizer import load_system, solve, to_text

CELLS = (
    'import optimizer\nfleet = optimizer.load_system("specs/small")\nplan = optimizer.solve(fleet)\nplan',
    'optimizer.make_figure(fleet, "types")',
    'optimizer.sweep(fleet, "load=1,1.1")',
    "print(plan)",
    "plan.to_dataframe(fleet).head(2)",
)


@pytest.fixture(scope="module")
def outputs() -> list[dict[str, Any]]:
    """Return the data of the output of each cell, by media type."""
    client = pytest.importorskip("nbclient", reason="nbclient is not installed; pip install -e '.[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; pip install -e '.[dev]'")
    form = pytest.importorskip("nbformat.v4")
    notebook = form.new_notebook(cells=[form.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(ROOT)}}
    done = client.NotebookClient(notebook, timeout=300, resources=resources).execute()
    (found,) = zip(*(cell["outputs"] for cell in done["cells"]), strict=True)
    return [output.get("data", {"text/plain": output.get("text")}) for output in found]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_shows_plans_pictures_and_tables(outputs: list[dict[str, Any]]) -> None:
    plan, picture, sweep, printed, frame = outputs
    assert plan["text/html"].startswith("<table><caption>optimal plan, 41,857.75 cents/h")
    assert picture["image/svg+xml"].lstrip().startswith("<?xml")
    assert "<svg" in picture["image/svg+xml"]
    assert "2 plans, all proved optimal" in html.unescape(sweep["text/html"])
    assert sweep["text/html"].startswith("<pre>")
    assert "service_class" in frame["text/html"]
    expected = solve(load_system(ROOT / "specs" / "small"))
    assert printed["text/plain"].rstrip() == to_text(expected, 80)
