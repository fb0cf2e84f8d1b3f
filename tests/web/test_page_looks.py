"""The page in all its looks: barriers, screens, fleets with many servers, names that look like markup."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, server, service_class
from page_runs import SELECT_ALL, Journey, served
from service_runs import ask

from optimizer import load_system
from optimizer.spec.writing import write_document

pytestmark = pytest.mark.slow
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
LOADS_RPM = (60.0, 200.0, 40.0)
"""Loads of three snapshots: of the second not all is served, of the third replicas are held."""


def post(service: str, path: str, body: object, method: str = "POST") -> None:
    """Change the fleet of a service."""
    port = int(service.rpartition(":")[2])
    assert ask(port, method, path, body).status == 200


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, specs: Path) -> Iterator[str]:
    system = load_system(specs / "small")
    options = ("serve", "--stateful", "--web", "--stabilise", "recommended")
    with served(tmp_path_factory.mktemp("web") / "log", *options) as address:
        fleet = system.to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
        post(address, "/v1/fleet", fleet, "PUT")
        for rate_rpm in LOADS_RPM:
            post(address, "/v1/loads", {name: {"arrivalRate": rate_rpm} for name in system.servers})
            post(address, "/v1/plan/apply", {})
        yield address


@pytest.fixture
def journey(browser: Any, service: str) -> Iterator[Journey]:
    yield Journey(browser, service)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def has_no_barriers(journey: Journey) -> bool:
    assert journey.barriers() == []
    assert journey.wider() <= 0
    return True


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_no_page_has_barriers_or_is_wider_than_the_screen(journey: Journey, width: int, scheme: str) -> None:
    journey.look(width, scheme)
    journey.open("/web/", ".cm-content")
    journey.wait(lambda: journey.all('.cm-content[aria-label="Document"]'))
    assert has_no_barriers(journey)
    journey.check()
    journey.open("/web/?open=sample:small&load=1.5", ".fact")
    journey.wait(lambda: journey.fact("total cost"))
    journey.press("Premium-llama_13b")
    journey.wait(lambda: journey.shows("Premium-llama_13b: why this accelerator"))
    journey.wait(
        lambda: journey.shows("Where it can run, and the additional cost of the plan (* runs there)")
    )
    assert has_no_barriers(journey)
    journey.press("Close")
    for name in ("Prices", "Each target", "Limited against unlimited"):
        journey.press(name)
    journey.wait(lambda: journey.shows("Limited against unlimited"))
    assert has_no_barriers(journey)
    journey.tab("Document")
    journey.wait(lambda: journey.all('.cm-content[aria-label="Document"]'))
    assert has_no_barriers(journey)
    journey.tab("Studies")
    for name, heading in (("sweep", "Plans"), ("simulate", "Pools"), ("horizon", "Hours")):
        journey.press(f"Run {name}")
        journey.wait(partial(journey.shows, heading))
        assert has_no_barriers(journey)
    journey.tab("Live fleet")
    journey.wait(lambda: journey.shows("Replicas"))
    assert has_no_barriers(journey)
    journey.check()
    journey.press("Light or dark theme")
    journey.wait(lambda: bool(journey.all(".body--dark")) == (scheme == "light"))


def test_the_live_fleet_is_shown_as_it_changes(journey: Journey, specs: Path) -> None:
    journey.open("/web/", ".cm-content")
    journey.tab("Live fleet")
    journey.wait(lambda: journey.shows("Replicas"))
    text = journey.text()
    assert "Plan of " in text
    assert "targets held" in text
    assert "Every server of the last plan is served in full." in text
    loads = {name: {"arrivalRate": 300.0} for name in load_system(specs / "small").servers}
    post(journey.service, "/v1/loads", loads)
    journey.wait(lambda: "Every server of the last plan is served in full." not in journey.text())
    assert "optimal, " in journey.text()
    charts = journey.all("[role=img][aria-label]")
    titles = {each.get_attribute("aria-label").partition(",")[0] for each in charts}
    assert {"Cost of the plans [cents/h]", "Servers not served in full"} <= titles
    journey.check()


def test_a_simulation_shows_its_time_and_percentiles(journey: Journey) -> None:
    journey.open("/web/?open=sample:small", ".fact")
    journey.wait(lambda: journey.fact("total cost"))
    journey.tab("Studies")
    journey.type("Requests to each pool", f"{SELECT_ALL}100000")
    journey.press("Run simulate")
    journey.wait(lambda: "simulate: 1 s" in journey.text())
    journey.press("Stop simulate")
    journey.wait(lambda: not journey.waits())
    journey.type("Requests to each pool", f"{SELECT_ALL}1000")
    journey.press("Run simulate")
    journey.wait(lambda: journey.shows("Pools"))
    assert {"p95 TTFT simulated [ms]", "p95 ITL simulated [ms]"} <= {each.text for each in journey.all("th")}
    journey.check()


@pytest.mark.parametrize("width", [1280, 390])
def test_300_servers_with_long_names_do_not_jump(browser: Any, tmp_path: Path, width: int) -> None:
    names = [f"a-server-with-a-very-long-name-of-a-team-in-a-region-{i:03}" for i in range(300)]
    source = document(
        [server(name, 60.0 + 2 * i) for i, name in enumerate(names)], [accelerator("G")], {"G": 900}
    )
    write_document(source, tmp_path / "system.json")
    with served(tmp_path / "log", "web", str(tmp_path / "system.json"), "--no-browser") as address:
        journey = Journey(browser, address)
        journey.look(width)
        journey.open("/", ".fact")
        journey.wait(lambda: names[0] in journey.text())
        before = journey.fact("cards")
        journey.drag("Load of all servers", 10)
        journey.wait(lambda: journey.fact("cards") not in {"", before})
        assert journey.wider() <= 0
        journey.check()
        journey.type("Filter servers", names[7])
        journey.wait(lambda: names[0] not in journey.text())
        journey.choose("One server", names[7])
        journey.type("Factor on its load", f"{SELECT_ALL}4000")
        journey.wait(lambda: f"load:{names[7]}=4000" in browser.current_url)
        journey.wait(lambda: journey.shows("Not served in full"))
        rows = ".servers tbody tr"
        assert [each.text.split()[0] for each in journey.all(rows)] == [names[7]], "the filter stays"
        journey.press("Undo")
        journey.wait(lambda: not journey.shows("Not served in full"))
        field = journey.all('[aria-label="Factor on its load"]')[0]
        assert field.get_attribute("value") == "1"
        assert journey.wider() <= 0
        journey.leave()


def test_names_that_look_like_markup_are_text(browser: Any, tmp_path: Path) -> None:
    name = "<img src='http://127.0.0.1:9/x.png' onerror='console.error(1)'>{{1+1}}"
    source = document(
        [server(name, service=name)], [accelerator(name)], {name: 9}, classes=[service_class(name)]
    )
    write_document(source, tmp_path / "system.json")
    with served(tmp_path / "log", "web", str(tmp_path / "system.json"), "--no-browser") as address:
        journey = Journey(browser, address)
        journey.open("/", ".fact")
        journey.wait(lambda: name in journey.text())
        journey.press(name)
        journey.wait(lambda: "why this accelerator" in journey.text())
        journey.press("Close")
        journey.tab("Studies")
        journey.check()
        journey.leave()
    assert json.loads((tmp_path / "system.json").read_text("utf-8"))
