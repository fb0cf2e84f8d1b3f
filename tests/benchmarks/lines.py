"""Count code lines, and words of the documentation: ``python tests/benchmarks/lines.py [DIR ...]``.

A code line has at least one token that is neither a comment nor part of a docstring. So moving words into or
out of comments changes nothing, and neither do empty lines.
"""

import ast
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ("optimizer", "rest_server", "tests")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Return the number of code lines of a file."""
    documented = set(_docstring_starts(ast.parse(path.read_bytes())))
    found: set[int] = set()
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type not in NO_CODE and token.start not in documented:
                found.update(range(token.start[0], token.end[0] + 1))
    return len(found)


def _docstring_starts(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield line and column of every string that is a statement: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield node.lineno, node.col_offset


def folders(root: Path, names: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each folder and package in it, with its files and code lines."""
    for name in names:
        top = root / name
        files = {path: code_lines(path) for path in sorted(top.rglob("*.py"))}
        yield name, len(files), sum(files.values())
        for inner in sorted({path.relative_to(top).parts[0] for path in files if path.parent != top}):
            mine = [count for path, count in files.items() if (top / inner) in path.parents]
            yield f"  {inner}", len(mine), sum(mine)


def words(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the pages and words of the documentation, and of the groups of its navigation."""
    counts = {
        path: len(path.read_text(encoding="utf-8").split()) for path in sorted((root / "docs").rglob("*.md"))
    }
    yield "docs", len(counts), sum(counts.values())
    site = tomllib.loads((root / ".zensical.toml").read_text(encoding="utf-8"))
    for group in site["project"]["nav"]:
        for name, target in group.items():
            pages = (
                [target] if isinstance(target, str) else [page for item in target for page in item.values()]
            )
            yield f"  {name}", len(pages), sum(counts[root / "docs" / page] for page in pages)


def main() -> None:
    """Print a table of files and code lines, and one of pages and words."""
    for name, count, lines in folders(ROOT, sys.argv[1:] or [*DEFAULT]):
        print(f"{name:28} {count:5,} files {lines:7,} lines")
    for name, count, amount in words(ROOT):
        print(f"{name:28} {count:5,} pages {amount:7,} words")


if __name__ == "__main__":
    main()
