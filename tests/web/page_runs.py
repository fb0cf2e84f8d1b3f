"""The page in a real browser: a service in a process of its own, journeys, what a page logs and requests."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from browsers import opened
from commands import COUNTED
from forked import forked
from patience import PATIENCE_S, until

SHIFTS = """
if (!window.moved) {  // not yet by an earlier journey of this browser
  window.shifts = 0;
  window.moved = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) {
      window.shifts += entry.value;
      for (const each of entry.sources) window.moved.push(
        `${entry.value.toFixed(3)} ${each.previousRect.y} to ${each.currentRect.y}: ` +
        (each.node?.outerHTML ?? each.node?.textContent ?? "").slice(0, 100));
    }
  }).observe({ type: "layout-shift", buffered: true });
}
"""
SELECT_ALL = "\ue009a\ue009"
"""Keys that select the text of a field."""
FACT = """
const facts = [...document.querySelectorAll(".fact")];
const found = facts.find((each) => each.querySelector(".name").textContent === arguments[0]);
const value = found ? found.querySelector(".value").textContent.trim() : "";
return value === "…" ? "" : value;  // not yet known
"""
NAMED = """
const [places, name] = arguments;
const is = (each) => each.innerText.split("\\n")[0].trim() === name || each.ariaLabel === name;
return [...document.querySelectorAll(places)].find((each) => each.checkVisibility() && is(each)) ?? null;
"""
BUTTONS = "button, .q-expansion-item .q-item"
WAITS = "return getComputedStyle(document.querySelector('.waiting')).visibility === 'visible'"
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
MAX_LAYOUT_SHIFT = 0.1
"""Cumulative layout shift up to which a page counts as steady."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
BARRIERS = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: arguments[0]}).then((found) => done(found.violations.map(
  (each) => `${each.id}: ${each.nodes.slice(0, 3).map(
    (node) => node.html.slice(0, 200) + " " + JSON.stringify(node.any[0]?.data ?? null)).join(" | ")}`)));
"""


@contextmanager
def served(log: Path, *options: str) -> Iterator[str]:
    """Run a command that serves the page, patient on a busy machine; yield the address of the service."""
    patient = COUNTED | {"INFERPLAN_REQUEST_TIMEOUT_S": str(PATIENCE_S)}
    command = *options, "--port", "0"
    with log.open("wb") as errors, forked(*command, environment=patient, errors=errors) as process:
        until(lambda: b"listening on" in log.read_bytes() or process.poll() is not None)
        found = re.search(r"listening on (http://[^\"\s]+)", log.read_text("utf-8"))
        assert found, log.read_text("utf-8")
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait() in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
    assert "Traceback" not in log.read_text("utf-8"), log.read_text("utf-8")


class Journey:
    """Steps in one page, with all that it requests and logs."""

    def __init__(self, browser: Any, service: str) -> None:
        self.browser, self.service = browser, service
        self.asked: list[str] = []
        self.logged: list[Any] = []
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SHIFTS})

    def open(self, path: str, shown: str) -> None:
        asked, logged = opened(self.browser, f"{self.service}{path}", shown)
        self.asked += asked
        self.logged += logged

    def leave(self) -> None:
        """Close the page, before its service ends."""
        self.browser.get("about:blank")

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements("css selector", selector)
        return found

    def wait(self, condition: Callable[[], Any]) -> None:
        from selenium.common.exceptions import WebDriverException

        def holds() -> bool:
            try:
                return bool(condition())
            except WebDriverException:  # an element that is replaced, or still moves
                return False

        until(holds, 0.1)  # each look costs the browser and the page something

    def text(self) -> str:
        return str(self.browser.execute_script("return document.body.innerText"))

    def fact(self, name: str) -> str:
        """Return a figure of the plan by its name."""
        return str(self.browser.execute_script(FACT, name))

    def tab(self, name: str) -> None:
        """Show a tab; press it again where the page was still being built."""
        self.wait(lambda: self._shown(name))

    def _shown(self, name: str) -> bool:
        tab = self.browser.execute_script(NAMED, ".q-tab", name)
        if tab.get_attribute("aria-selected") != "true":
            tab.click()
        return bool(tab.get_attribute("aria-selected") == "true")

    def press(self, name: str) -> None:
        """Press what has a text, as soon as that is possible."""
        self.wait(lambda: self._pressed(self.browser.execute_script(NAMED, BUTTONS, name)))

    def _pressed(self, found: Any) -> bool:
        if found is None:
            return False
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        return True

    def drag(self, name: str, steps: int) -> None:
        """Move a slider by steps, as the keyboard does."""
        slider = self.all(f'input[type=range][aria-label="{name}"]')[0]
        slider.send_keys(("\ue014" if steps > 0 else "\ue012") * abs(steps))

    def waits(self) -> bool:
        """Return whether the page waits for an answer."""
        return bool(self.browser.execute_script(WAITS))

    def save_into(self, folder: Path) -> None:
        """Keep downloads in a folder."""
        given = {"behavior": "allow", "downloadPath": str(folder)}
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", given)

    def shows(self, heading: str) -> bool:
        """Return whether the page has a heading."""
        return bool(self.browser.execute_script(NAMED, "h2", heading))

    def wider(self) -> int:
        """Return by how much the page is wider than the screen [px]."""
        return int(self.browser.execute_script(WIDER))

    def look(self, width: int, scheme: str = "light") -> None:
        """Take a width [px], and the scheme ``light`` or ``dark``."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def type(self, label: str, text: str) -> None:
        """Type into a field."""
        self.wait(lambda: self._typed(label, text))

    def _typed(self, label: str, text: str) -> bool:
        self.all(f'[aria-label="{label}"]')[0].send_keys(text)
        return True

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a select."""
        self.wait(lambda: self._pressed(next(iter(self.all(f'[aria-label="{label}"]')), None)))
        self.wait(lambda: self._pressed(self.browser.execute_script(NAMED, ".q-menu .q-item", option)))

    def write(self, text: str) -> None:
        """Replace the text of the editor, as a paste does."""
        script = "const view = arguments[0].cmTile?.root?.view ?? arguments[0].cmView.view;"
        script += "view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: arguments[1]}});"
        self._with_first(".cm-content", lambda editor: self.browser.execute_script(script, editor, text))

    def upload(self, file: Path) -> None:
        """Choose a file."""
        self._with_first("input[type=file]", lambda field: field.send_keys(str(file)))

    def _with_first(self, selector: str, act: Callable[[Any], object]) -> None:
        """Act on the first element of a selector; again, if the page has replaced it meanwhile."""

        def acted() -> bool:
            found = self.all(selector)
            for element in found[:1]:
                act(element)
            return bool(found)

        self.wait(acted)

    def barriers(self) -> list[str]:
        """Return the rules of WCAG 2.1 AA that the page breaks."""
        axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
        self.browser.execute_script(axe)
        found: list[str] = self.browser.execute_async_script(BARRIERS, RULES)
        return found

    def check(self) -> None:
        """Check that the page has requested nothing elsewhere, logged no error, and did not jump."""
        host = urlsplit(self.service).netloc
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
        urls = [urlsplit(url) for url in self.asked if url.startswith(("http", "ws"))]
        assert {url.netloc for url in urls} <= {host}
        self.logged += self.browser.get_log("browser")
        errors = [entry for entry in self.logged if entry["level"] == "SEVERE"]
        assert not errors, errors
        shifts, moved = self.browser.execute_script("return [window.shifts, window.moved]")
        assert shifts < MAX_LAYOUT_SHIFT, moved
