"""Equations that code, tests and pages cite by number are on the pages."""

import re

from doc_pages import ROOT

CITED = re.compile(r"\beqs?\. ([A-Z]?\d+(?:(?:, | and |-|–)[A-Z]?\d+)*)")


def test_every_equation_that_is_cited_has_its_number_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    numbers = re.findall(r"\\tag\{(\w+)\}", text)
    files = [
        *(ROOT / "optimizer").rglob("*.py"),
        *(ROOT / "rest_server").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    cited = {
        (number, str(path.relative_to(ROOT)))
        for path in files
        for found in CITED.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"[A-Z]?\d+", found)
    }
    assert len(cited) > 150
    assert {(number, path) for number, path in cited if number not in numbers} == set()
    assert len(numbers) == len(set(numbers))
