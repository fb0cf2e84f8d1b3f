"""The HTML report in a real browser: no error, no request, every section and picture there.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped, with the reason, where they are missing.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from browsers import opened
from builders import accelerator, document, server, service_class

from optimizer.cli.main import main

ROOT = Path(__file__).parents[2]
LAYOUT = """
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const pictures = [...document.images].map(image => image.complete && image.naturalWidth > 0);
const inner = [...document.querySelectorAll(".wide")].filter(box => box.scrollWidth > box.clientWidth).length;
const shown = [...document.querySelectorAll('header[id], section[id]')]
  .filter(section => section.getBoundingClientRect().height > 20).map(section => section.id);
return [wide, pictures, shown, inner];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(ROOT / "specs" / "large"), "-o", str(path)]) == 0
    return path


def test_the_log_of_the_browser_would_show_a_request(browser: Any, tmp_path: Path) -> None:
    """The check of the next test can fail: a page that does ask is seen to."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('seen')</script>")
    asked, logged = opened(browser, bad.as_uri())
    assert asked == [bad.as_uri(), "http://127.0.0.1:9/x.png"]
    assert [entry for entry in logged if entry["level"] == "SEVERE"]


def test_the_report_opens_without_an_error_or_a_request(browser: Any, page: Path) -> None:
    assert opened(browser, page.as_uri()) == ([page.as_uri()], [])


def test_names_that_look_like_markup_do_nothing(browser: Any, tmp_path: Path) -> None:
    name = "<img src='http://127.0.0.1:9/x.png' onerror='console.error(1)'><script>console.error(2)</script>"
    source = document(
        [server(name, service=name)], [accelerator(name)], {name: 9}, classes=[service_class(name)]
    )
    (tmp_path / "system.json").write_text(json.dumps(source))
    path = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "system.json"), "-o", str(path)]) == 0
    assert opened(browser, path.as_uri()) == ([path.as_uri()], [])
    assert name in browser.execute_script("return document.body.innerText")


@pytest.mark.parametrize("width", [1280, 375])
def test_page_shows_everything_without_horizontal_scrolling(browser: Any, page: Path, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(page.as_uri())
    wide, pictures, shown, inner = browser.execute_script(LAYOUT)
    assert wide <= 0
    assert inner == 0 or width > 600
    assert pictures == [True] * 3
    assert shown == [
        "headline", "decision", "risks", "assignment", "types", "latencies", "utilisation", "capacity",
        "unserved", "comparison", "classes", "replicas",
    ]  # fmt: skip


def test_a_click_on_a_heading_sorts_the_table(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    column = """
    const table = document.querySelector("#assignment table");
    table.tHead.rows[0].cells[arguments[0]].click();
    return [...table.tBodies[0].rows].map(row => row.cells[arguments[0]].textContent);
    """
    costs = [float(text.replace(",", "")) for text in browser.execute_script(column, 10)]
    assert len(costs) == 27
    assert costs == sorted(costs)
    down = [float(text.replace(",", "")) for text in browser.execute_script(column, 10)]
    assert down == costs[::-1]
    names = browser.execute_script(column, 0)
    assert names[0] == "Bronze-granite_13b"


def test_in_the_dark_the_page_is_dark(browser: Any, page: Path) -> None:
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    look = """
    return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.images[0]).filter];
    """
    browser.get(page.as_uri())
    assert browser.execute_script(look) == ["rgb(255, 255, 255)", "none"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    background, pictures = browser.execute_script(look)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert background == "rgb(18, 18, 18)"
    assert pictures.startswith("invert")
