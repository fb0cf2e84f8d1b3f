"""Build the documentation site: ``python tests/tools/site_pages.py [build|serve]``.

The pages are copied from docs to build/docs and completed there: the reference with the help of every command
and the fields of every result, the page about Python with the public names, and the site with MathJax, from
an installed package. Neither building nor reading needs a network.
"""

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import extending_page
import python_page
import reference_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "docs"
COMPLETED = {
    "reference.md": reference_page.completed,
    "extending.md": extending_page.completed,
    "python.md": python_page.completed,
}
"""Pages with parts that only the site has, and what returns them with these parts."""


def page_text(page: Path) -> str:
    """Return a page of docs as the site shows it."""
    text = page.read_text(encoding="utf-8")
    return COMPLETED[page.name](text) if page.name in COMPLETED else text


def write_pages(folder: Path = PAGES) -> None:
    """Write the pages and the files of the site into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name in COMPLETED:
        (folder / name).write_text(page_text(ROOT / "docs" / name), encoding="utf-8")
    script = files("mathjax") / "static" / "mathjax" / "es5" / "tex-svg.js"
    (folder / "tex-svg.js").write_bytes(script.read_bytes())


def main() -> int:
    """Write the pages, then build or serve the site."""
    write_pages()
    action = sys.argv[1] if len(sys.argv) > 1 else "build"
    strict = ["--strict"] if action == "build" else []
    command = [sys.executable, "-m", "zensical", action, "-f", ".zensical.toml", *strict]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
