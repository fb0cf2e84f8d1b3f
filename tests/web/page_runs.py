"""The page in a real browser: a service in a process of its own, journeys, what a page logs and requests."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from browsers import opened
from patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
SHIFTS = """
window.shifts = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
MOST_SHIFT = 0.1
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
    """Run a command that serves the page; yield the address of the service."""
    command = [sys.executable, "-m", "optimizer", *options, "--port", "0"]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors, cwd=ROOT) as process:
        try:
            until(lambda: b"listening on" in log.read_bytes() or process.poll() is not None)
            found = re.search(r"listening on (http://[^\"\s]+)", log.read_text("utf-8"))
            assert found, log.read_text("utf-8")
            yield found[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
        finally:
            process.kill()
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

        until(holds)

    def text(self) -> str:
        return str(self.browser.execute_script("return document.body.innerText"))

    def fact(self, name: str) -> str:
        """Return a figure of the plan by its name."""
        found = [each.text.split("\n") for each in self.all(".fact")]
        return next((lines[1] for lines in found if lines[0] == name), "")

    def tab(self, name: str) -> None:
        """Show a tab; press it again where the page was still being built."""
        self.wait(lambda: self._shown(name))

    def _shown(self, name: str) -> bool:
        tab = next(each for each in self.all(".q-tab") if each.text == name)
        if "q-tab--active" not in str(tab.get_attribute("class")):
            tab.click()
        return "q-tab--active" in str(tab.get_attribute("class"))

    def press(self, name: str) -> None:
        """Press what has a text, as soon as that is possible."""
        places = "button, .q-expansion-item .q-item, .q-menu .q-item"
        self.wait(
            lambda: self._pressed(
                each
                for each in self.all(places)
                if name in {each.text.partition("\n")[0].strip(), each.get_attribute("aria-label")}
            )
        )

    def _pressed(self, found: Iterator[Any]) -> bool:
        each = next(found, None)
        if each is None:
            return False
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", each)
        each.click()
        return True

    def type(self, label: str, text: str) -> None:
        """Type into a field."""
        self.wait(lambda: self._typed(label, text))

    def _typed(self, label: str, text: str) -> bool:
        self.all(f'[aria-label="{label}"]')[0].send_keys(text)
        return True

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a select."""
        self.wait(lambda: self._pressed(iter(self.all(f'[aria-label="{label}"]'))))
        self.press(option)

    def write(self, text: str) -> None:
        """Replace the text of the editor, as a paste does."""
        script = "const view = arguments[0].cmTile?.root?.view ?? arguments[0].cmView.view;"
        script += "view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: arguments[1]}});"
        self.wait(lambda: self.all(".cm-content"))
        self.browser.execute_script(script, self.all(".cm-content")[0], text)

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
        assert [entry for entry in self.logged if entry["level"] == "SEVERE"] == []
        assert self.browser.execute_script("return window.shifts") < MOST_SHIFT
