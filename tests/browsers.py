"""A real browser for tests, and what a page makes it request.

Needs Debian's ``chromium`` and ``chromium-driver``; without them tests are skipped, with the reason.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

ELSEWHERE = "planner.example"
"""A name under which the browser finds this machine, and which is none of its own."""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)  # fmt: skip


def started(folder: Path) -> Iterator[Any]:
    """Yield a fresh headless browser that logs what it requests, with its files in a folder."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


def cleared(driver: Any) -> None:
    """Leave the page, and take back what was set for it."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def opened(driver: Any, address: str, shown: str = "body") -> tuple[list[str], list[Any]]:
    """Open a page; return the addresses that it has requested, its own among them, and what it has logged.

    What the browser requests and logs on its own account, as it starts, is excluded.

    Args:
        driver: the browser.
        address: of the page.
        shown: the selector of an element that is there when the page is complete.
    """
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    for log in ("performance", "browser"):
        driver.get_log(log)
    driver.get(address)
    WebDriverWait(driver, PATIENCE_S).until(lambda page: page.find_elements(By.CSS_SELECTOR, shown))
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    asked = [each["request"]["url"] for each in sent if each["documentURL"] == address]
    return [url for url in asked if not url.startswith(("data:", "blob:"))], driver.get_log("browser")
