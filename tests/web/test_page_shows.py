"""The page shows a plan completely and keeps it: no cut column, every tightest target, one solve.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped, with the reason, where they are missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_runs import SELECT_ALL, Journey, served

pytestmark = pytest.mark.slow
SAMPLES = "gpus", "large", "everything", "serving-fleet"
SIZES = (1280, 800), (1920, 1080), (400, 800)
CUT = """
const cells = [...document.querySelectorAll(".servers :is(td, th)")].filter((each) => each.checkVisibility());
return cells.filter((each) => {
  const place = each.getBoundingClientRect();
  return place.left < 0 || place.right > innerWidth + 1 || each.scrollWidth > each.clientWidth + 1;
}).map((each) => each.textContent);
"""
"""Texts of cells of servers that are cut off, or outside the screen."""
UNTOLD = """
const rows = [...document.querySelectorAll(".servers tbody tr:not(.queue, .missed)")];
return rows.filter((row) => {
  const first = row.querySelector(".meter b");
  row.scrollIntoView({block: "center"});
  const place = first?.getBoundingClientRect();
  return !place || place.left < 0 || place.right > innerWidth || place.bottom > innerHeight
    || !document.elementsFromPoint(place.x + 1, place.y + place.height / 2).includes(first);
}).map((row) => row.textContent);
"""
"""Texts of rows whose tightest target cannot be seen."""
SILENCE = """
window.marker = true;
window.socket.io.reconnectionDelay(6000);
window.socket.io.reconnectionDelayMax(6000);
window.socket.io.engine.close();
"""
BROKEN = "accelerators:\n  - {name: H100, type: H100\ncount: ]\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("web") / "log", "web", "--no-browser") as address:
        yield address


@pytest.fixture
def journey(browser: Any, service: str) -> Iterator[Journey]:
    yield Journey(browser, service)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def has_plan(journey: Journey) -> bool:
    return bool(journey.fact("total cost"))


def look(journey: Journey, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    journey.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_column_is_cut_and_every_tightest_target_is_visible(journey: Journey, sample: str) -> None:
    for width, height in SIZES:
        look(journey, width, height)
        journey.open(f"/?open=sample:{sample}", ".fact")
        journey.browser.execute_script("window.marker = true")
        journey.wait(lambda: has_plan(journey))
        journey.wait(lambda: journey.all(".servers tbody tr"))
        assert journey.browser.execute_script(CUT) == []
        without_targets = {"reindex"} if sample == "everything" else set()
        untold = journey.browser.execute_script(UNTOLD)
        assert [text for text in untold if not text.startswith(tuple(without_targets) or "\0")] == []
        assert journey.wider() <= 0
        assert journey.barriers() == []
        assert journey.browser.execute_script("return window.marker"), "the page has not reloaded"
    journey.check()


def test_a_plan_survives_a_silent_browser(journey: Journey) -> None:
    """A browser that is silent for 6 s, longer than NiceGUI's default, keeps its page."""
    journey.open("/?open=sample:gpus", ".fact")
    journey.browser.execute_script(SILENCE)
    journey.wait(lambda: has_plan(journey))
    journey.wait(lambda: "typical: " in journey.text())
    assert journey.browser.execute_script("return window.marker"), "the page has not reloaded"
    journey.check()


def test_an_error_has_its_line_and_the_last_plan_stays(journey: Journey) -> None:
    journey.open("/?open=sample:chat", ".fact")
    journey.wait(lambda: has_plan(journey))
    cost = journey.fact("total cost")
    journey.tab("Document")
    journey.write(BROKEN)
    journey.press("Check and plan")
    journey.wait(lambda: journey.all(".finding.error"))
    finding = journey.all(".finding.error")[0]
    assert finding.text.startswith("line 3, error: not valid YAML")
    journey.press(finding.text)
    journey.wait(lambda: [each for each in journey.all(".cm-line.found") if "count" in each.text])
    journey.tab("Plan")
    assert journey.fact("total cost") == cost
    assert "The document in the editor has an error" in journey.text()
    journey.check()


def test_the_remedy_of_an_overload_can_be_tried(journey: Journey, tmp_path: Path) -> None:
    journey.save_into(tmp_path)
    journey.open("/?open=sample:gpus&load=2.5", ".fact")
    journey.wait(lambda: "Serve all: +16 H100 +28 H200, 263.20 USD/h in total." in journey.text())
    assert "Not served: 42.0 of 248.8 requests/s (5 servers) at 2.5 times the stated load." in journey.text()
    journey.press("Try it")
    journey.wait(lambda: journey.fact("served in full") == "all 10 servers")
    assert "Not served: " not in journey.text()
    assert "Now every server is served in full: +16 H100 +28 H200, 263.20 USD/h." in journey.text()
    journey.press("Plan JSON")
    journey.wait((tmp_path / "plan.json").exists)
    limits = {
        item["type"]: item["limit"] for item in json.loads((tmp_path / "plan.json").read_text())["capacity"]
    }
    assert (limits["H100"], limits["H200"]) == (32, 44)
    journey.check()


def test_results_of_studies_stack(journey: Journey) -> None:
    journey.open("/?open=sample:small", ".fact")
    journey.wait(lambda: has_plan(journey))
    journey.tab("Studies")
    journey.press("Run sweep")
    journey.wait(lambda: len(journey.all(".result")) == 1)
    journey.choose("Vary", "cards of G2")
    journey.type("From", f"{SELECT_ALL}1")
    journey.type("To", f"{SELECT_ALL}4")
    journey.press("Run sweep")
    journey.wait(lambda: len(journey.all(".result")) == 2)
    titles = [each.text for each in journey.all(".result > .tools h2")]
    assert titles[-1].startswith("Sweep: count:G2=1..4")
    assert titles[0].startswith("Sweep: load=0.5..3")
    journey.press("Remove this result")
    journey.wait(lambda: len(journey.all(".result")) == 1)
    journey.check()
