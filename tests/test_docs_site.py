"""The pages of the documentation: every link leads somewhere, and the site is built without a warning."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT
from site_pages import page_text

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:optimizer|rest_server|tests|demos|docs|specs|manifests)/[\w./-]+)`")
EXAMPLES = {
    "optimizer/features/mirrored",
    "optimizer/kinds/streams",
    "optimizer/limits/rack_slots.py",
    "optimizer/timing/toy.py",
}
"""Files that a reader of docs/extending.md writes."""
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def text_of(page: Path) -> str:
    return page_text(page)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in texts}


def dead_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.few(2)
@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_table_starts_with_a_heading(page: Path) -> None:
    """A blank line inside a table makes text of the rows below it."""
    tables = re.findall(r"(?:^[|].*\n)+", prose(page), re.MULTILINE)
    rule = re.compile(r"[|].*\n[|](?:\s*:?-+:?\s*[|])+\n")
    assert [table.partition("\n")[0] for table in tables if not rule.match(table)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8"))) - EXAMPLES
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_page_is_in_the_navigation() -> None:
    site = tomllib.loads((ROOT / ".zensical.toml").read_text(encoding="utf-8"))

    def pages(items: list[dict[str, Any]]) -> Iterator[str]:
        for item in items:
            for target in item.values():
                yield from [target] if isinstance(target, str) else pages(target)

    assert sorted(pages(site["project"]["nav"])) == [path.relative_to(DOCS).as_posix() for path in PAGES]


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra docs")
def test_the_site_is_built_and_loads_nothing_from_a_network() -> None:
    command = [sys.executable, "tests/tools/site_pages.py"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    site = ROOT / "build" / "site"
    assert built.returncode == 0, built.stdout + built.stderr
    assert (site / "search.json").exists()
    page = (site / "math" / "index.html").read_text(encoding="utf-8")
    assert (site / "tex-svg.js").stat().st_size > 1_000_000
    assert "../tex-svg.js" in page
    loaded = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=\"?(https?:[^\"\s>]+)")
    assert [url for url in loaded.findall(page) if "canonical" not in url] == []
