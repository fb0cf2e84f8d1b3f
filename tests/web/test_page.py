"""The page for analysts in a real browser: three journeys, the question of README.md, files that it saves.

Needs Debian's ``chromium`` and ``chromium-driver``; skipped, with the reason, where they are missing.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from page_runs import SELECT_ALL, Journey, served

from optimizer import load_system, solve
from optimizer.money import in_cost_unit
from optimizer.quantities import counted_of
from optimizer.render.money import Money
from rest_server.web.changes import Changes

MAX_ACTIONS = 8
"""Maximum number of actions from README.md to the value of more cards."""
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
    journey.save_into(tmp_path)
    journey.open("/", ".cm-content")
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


@pytest.mark.slow
def test_from_a_broken_file_to_a_plan(journey: Journey, specs: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    journey.open("/", ".cm-content")
    journey.upload(tmp_path / "broken.yaml")
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
    journey.wait(lambda: journey.fact("total cost") == before)
    journey.drag("Load of all servers", 10)
    journey.wait(lambda: "load=1.5" in journey.browser.current_url)
    journey.wait(lambda: journey.fact("total cost") not in {"", before})
    changed = journey.fact("total cost")
    assert "Against the pinned plan: " in journey.text()
    journey.press("Limited against unlimited")
    journey.wait(lambda: journey.shows("Limited against unlimited"))
    journey.check()
    journey.open(journey.browser.current_url.removeprefix(journey.service), ".fact")
    journey.wait(lambda: journey.fact("total cost") == changed)
    journey.wait(lambda: "Against the pinned plan: " in journey.text())
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
def test_an_unserved_server_shows_its_repairs_on_a_phone(journey: Journey) -> None:
    journey.look(400)
    journey.open("/?open=sample:gpus&load=1.5", ".fact")
    journey.wait(lambda: "Priority 3 · batch: 1 of 3 servers served in full" in journey.text())
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    servers, slider = (
        journey.browser.execute_script(top, place) for place in (".servers", "input[type=range]")
    )
    assert servers < slider, "results precede controls"
    assert journey.wider() <= 0
    rows = '[role=region][aria-label="Not served in full"] td button'
    journey.wait(lambda: journey.all(rows))
    journey.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", journey.all(rows)[0])
    journey.all(rows)[0].click()
    journey.wait(lambda: journey.shows("batch-llama-3.1-70b: why this accelerator"))
    journey.wait(lambda: "Repairs" in journey.text())
    before = journey.fact("served in full")
    journey.browser.execute_script("document.querySelector('.repair button').click()")
    journey.wait(lambda: journey.fact("served in full") not in {"", before})
    assert journey.fact("served in full") == "all 10 servers"
    assert "Now every server is served in full: +" in journey.text()
    journey.check()


@pytest.mark.slow
def test_saved_files_hold_the_changes(journey: Journey, tmp_path: Path) -> None:
    journey.save_into(tmp_path)
    journey.open("/?open=sample:small&load=1.5&count:G2=900", ".fact")
    journey.wait(lambda: journey.fact("total cost"))
    journey.press("YAML")
    journey.press("Plan JSON")
    journey.wait(lambda: (tmp_path / "system.yaml").exists() and (tmp_path / "plan.json").exists())
    plan = solve(load_system(tmp_path / "system.yaml"))
    assert {item.type: item.limit for item in plan.capacity}["G2"] == 900
    assert journey.fact("total cost") == Money.of(plan).text(plan.total_cost_cents_per_h)
    assert json.loads((tmp_path / "plan.json").read_text("utf-8")) == json.loads(plan.to_json())
    journey.check()


def shows(journey: Journey, total: str) -> bool:
    return journey.fact("total cost") == total


@pytest.mark.slow
def test_controls_of_reserves_and_estimates_plan_again(journey: Journey, specs: Path) -> None:
    journey.open("/?open=sample:gpus", ".fact")
    journey.wait(lambda: journey.fact("total cost") == "129.20 USD/h")
    given: dict[str, str] = {}
    steps: list[tuple[str, str, Callable[[], None]]] = [
        ("headroom", "20", lambda: journey.type("Headroom of all servers [%]", f"{SELECT_ALL}20\t")),
        ("spares", "1", lambda: journey.type("Spare replicas of each server", f"{SELECT_ALL}1\t")),
        ("estimates", "middle", lambda: journey.choose("Estimated token times", "typical")),
        ("budget", "100 USD/h", lambda: journey.type("Budget [USD/h]", f"{SELECT_ALL}100\t")),
    ]
    journey.press("Limits and other numbers")
    for key, text, act in steps:
        act()
        given[key] = text
        plan = solve(Changes(given=given).applied_to(load_system(specs / "gpus.yaml")))
        expected = Money.of(plan).text(plan.total_cost_cents_per_h)
        journey.wait(partial(shows, journey, expected))
        assert f"{key}={quote_plus(text, safe='/')}" in journey.browser.current_url
        held = len(plan.reserves) - len(plan.lacks_reserve)
        assert journey.fact("have their reserve") == counted_of(held, len(plan.reserves), "server")
    journey.check()


@pytest.mark.slow
def test_value_of_8_more_h100_at_50_percent_more_load(journey: Journey, specs: Path) -> None:
    """The steps of README.md; the first of them started the page."""
    journey.open("/?open=sample:gpus", ".fact")
    journey.wait(lambda: journey.fact("total cost"))
    actions: list[Callable[[], None]] = [
        lambda: journey.drag("Load of all servers", 10),
        lambda: journey.press("Pin"),
        lambda: journey.type("H100 [cards]", f"{SELECT_ALL}24"),
    ]
    assert 1 + len(actions) <= MAX_ACTIONS
    for action in actions:
        action()
        journey.wait(lambda: not journey.waits())
    both = [Changes(given={"load": "1.5"} | more) for more in ({}, {"count:H100": "24"})]
    plans = [solve(changes.applied_to(load_system(specs / "gpus.yaml"))) for changes in both]
    costs = [in_cost_unit(plan.total_cost_cents_per_h, plan.currency) for plan in plans]
    assert costs[1] > costs[0]
    difference = f"requests/s more of priority 3, {costs[1] - costs[0]:,.2f} {plans[0].currency}/h more."
    journey.wait(lambda: difference in journey.text())
    assert "Priority 3 · batch: all 3 servers served in full" in journey.text()
