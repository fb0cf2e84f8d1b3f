"""The HTML report in a real browser: no error, no request, every section and picture there.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped, with the reason, where they are missing.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from browsers import opened
from builders import accelerator, document, server, service_class
from slow_cases import mostly_slow

from optimizer.cli.main import main

ROOT = Path(__file__).parents[2]
PRINTED_PX = 695
"""Width of an A4 page without its margins of 13 mm, at 96 pixels per inch."""
PRINTED_HEIGHT_PX = 1009
"""Height of an A4 page without its margins of 14 mm and 16 mm."""
MAX_PAGES = {"gpus.yaml": 6, "everything": 12}
"""Maximum number of printed pages of the reports on two samples."""
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
    assert main(["report", str(ROOT / "specs" / "small"), "-o", str(path)]) == 0
    return path


@pytest.mark.slow
def test_the_log_of_the_browser_would_show_a_request(browser: Any, tmp_path: Path) -> None:
    """The check of the next test can fail: a page that does ask is seen to."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('seen')</script>")
    asked, logged = opened(browser, bad.as_uri())
    assert asked == [bad.as_uri(), "http://127.0.0.1:9/x.png"]
    assert [entry for entry in logged if entry["level"] == "SEVERE"]


def test_the_report_opens_without_an_error_or_a_request(browser: Any, page: Path) -> None:
    assert opened(browser, page.as_uri()) == ([page.as_uri()], [])


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert pictures == [True]
    assert shown == [
        "headline", "targets-picture", "types", "servers", "growth", "risks", "assignment",
        "overview", "cards", "targets", "comparison", "classes", "replicas", "assumptions", "prices",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("names", mostly_slow(["long", "short"], 1))
def test_the_printed_page_is_a4_and_cuts_no_column(
    browser: Any, specs: Path, tmp_path: Path, names: str
) -> None:
    """A column that does not fit makes Chromium shrink the page, or leaves a box wider than the page."""
    source = yaml.safe_load((specs / "gpus.yaml").read_text())
    for item in source["servers"] if names == "long" else ():
        item["name"] = f"production-eu-central-1-{item['name']}-instruct-fp8-dynamic-release-candidate"
    (tmp_path / "fleet.json").write_text(json.dumps(source))
    path = tmp_path / "report.html"
    assert (
        main(["report", str(tmp_path / "fleet.json"), "--simulate", "--requests", "500", "-o", str(path)])
        == 0
    )
    browser.get(path.as_uri())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": PRINTED_PX, "height": 700, "deviceScaleFactor": 1, "mobile": False},
    )
    found = browser.execute_script(
        "return [...document.querySelectorAll('table, img')]"
        ".map(item => Math.round(item.getBoundingClientRect().right))"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert max(found) <= PRINTED_PX
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    boxes = set(re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf))
    assert boxes == {(b"594.95996", b"841.91998")}


@pytest.mark.slow
@pytest.mark.parametrize("sample", mostly_slow(MAX_PAGES, 0))
def test_the_memo_fits_on_a_page_and_the_appendix_is_short(
    browser: Any, specs: Path, tmp_path: Path, sample: str
) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(specs / sample), "-o", str(path)]) == 0
    browser.get(path.as_uri())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {"width": PRINTED_PX, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    memo = browser.execute_script("return document.querySelector('.appendix').getBoundingClientRect().top")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert memo <= PRINTED_HEIGHT_PX
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= MAX_PAGES[sample]


@pytest.mark.slow
def test_a_click_on_a_heading_sorts_the_table(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    column = """
    const table = document.querySelector("#servers table");
    table.tHead.rows[0].cells[arguments[0]].click();
    return [...table.tBodies[0].rows].map(row => row.cells[arguments[0]].textContent);
    """
    costs = [float(text.replace(",", "")) for text in browser.execute_script(column, 6)]
    assert len(costs) == 15
    assert costs == sorted(costs)
    down = [float(text.replace(",", "")) for text in browser.execute_script(column, 6)]
    assert down == costs[::-1]
    names = browser.execute_script(column, 0)
    assert names[0] == "Bronze-granite_13b"


@pytest.mark.slow
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
