"""The page for analysts in a real browser: three journeys, barriers, names that look like markup.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped, with the reason, where they are missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, server, service_class
from page_runs import Journey, served

from optimizer import load_system, solve
from optimizer.render.money import Money
from optimizer.spec.writing import write_document

BROKEN = """\
accelerators:
  - {name: H100, type: H100, cost: 300}
count:
  - {type: H100, count: eight}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("web") / "log", "web", "--no-browser") as address:
        yield address


@pytest.fixture
def journey(browser: Any, service: str) -> Iterator[Journey]:
    yield Journey(browser, service)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def cost(path: Path) -> str:
    plan = solve(load_system(path))
    return Money.of(plan).text(plan.total_cost_cents_per_h)


def test_from_names_to_a_report(journey: Journey, tmp_path: Path) -> None:
    journey.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    journey.open("/", ".cm-content")
    journey.press("New document")
    journey.choose("Models", "llama-3.1-8b")
    journey.browser.switch_to.active_element.send_keys("\ue00c")
    journey.choose("Card", "H100")
    journey.type("Price", "$2.50/h")
    journey.choose("Use case", "Chat with people")
    journey.type("Load", "10/s")
    journey.press("Write the document")
    journey.wait(lambda: journey.fact("total cost"))
    assert "USD/h" in journey.fact("total cost")
    assert "Every server is served in full." in journey.text()
    journey.press("Report")
    journey.wait((tmp_path / "report.html").exists)
    assert journey.fact("total cost") in (tmp_path / "report.html").read_text("utf-8")
    journey.check()


def test_from_a_broken_document_to_a_plan(journey: Journey, specs: Path) -> None:
    journey.open("/", ".cm-content")
    journey.write(BROKEN)
    journey.press("Check and plan")
    journey.wait(lambda: journey.all(".finding"))
    finding = journey.all(".finding")[0]
    assert "line 4, error: count[0].count" in finding.text
    journey.press(finding.text)
    journey.wait(lambda: [each for each in journey.all(".cm-line.found") if "eight" in each.text])
    journey.write((specs / "chat.yaml").read_text("utf-8"))
    journey.press("Check and plan")
    journey.wait(lambda: journey.fact("total cost"))
    assert journey.fact("total cost") == cost(specs / "chat.yaml")
    journey.check()


@pytest.mark.slow
def test_limited_against_unlimited_with_a_slider(journey: Journey, specs: Path) -> None:
    journey.open("/?open=sample:small", ".fact")
    before = cost(specs / "small")
    assert journey.fact("total cost") == before
    slider = journey.all('input[type=range][aria-label="Load of all servers"]')[0]
    slider.send_keys("\ue014" * 10)
    journey.wait(lambda: "load=1.5" in journey.browser.current_url and journey.fact("total cost") != before)
    changed = journey.fact("total cost")
    assert "against the pinned plan" in journey.text()
    journey.press("Limited against unlimited")
    journey.wait(lambda: [each for each in journey.all("h2") if each.text == "Limited against unlimited"])
    journey.check()
    journey.open(journey.browser.current_url.removeprefix(journey.service), ".fact")
    journey.wait(lambda: journey.fact("total cost") == changed)
    journey.wait(lambda: "against the pinned plan" in journey.text())
    journey.press("Reset")
    journey.wait(lambda: journey.fact("total cost") == before)
    journey.press("Undo")
    journey.wait(lambda: journey.fact("total cost") == changed)
    journey.check()


def test_a_server_is_explained(journey: Journey) -> None:
    journey.open("/?open=sample:small", ".fact")
    journey.press("Premium-llama_13b")
    journey.wait(lambda: "Next-best alternative" in journey.text())
    assert "Where it can run" in journey.text()
    journey.check()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_barriers_and_nothing_wider_than_the_screen(journey: Journey, width: int, scheme: str) -> None:
    browser = journey.browser
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    journey.open("/?open=sample:small&load=1.5", ".fact")
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for tab in ("Plan", "Document", "Studies"):
        journey.tab(tab)
        if tab == "Document":
            journey.wait(lambda: journey.all('.cm-content[aria-label="Document"]'))
        assert journey.barriers() == []
        assert browser.execute_script(wide) <= 0
    journey.check()


@pytest.mark.slow
def test_names_that_look_like_markup_are_text(browser: Any, tmp_path: Path) -> None:
    name = "<img src='http://127.0.0.1:9/x.png' onerror='console.error(1)'>{{1+1}}"
    long = "a-server-with-a-very-long-name-" * 4
    source = document(
        [server(name, service=name), server(long, service=name)],
        [accelerator(name)],
        {name: 9},
        classes=[service_class(name)],
    )
    write_document(source, tmp_path / "system.json")
    with served(tmp_path / "log", "web", str(tmp_path / "system.json"), "--no-browser") as address:
        journey = Journey(browser, address)
        journey.open("/", ".fact")
        journey.wait(lambda: name in journey.text())
        journey.press(name)
        journey.wait(lambda: "why this accelerator" in journey.text())
        journey.tab("Studies")
        journey.check()
    assert json.loads((tmp_path / "system.json").read_text("utf-8"))
