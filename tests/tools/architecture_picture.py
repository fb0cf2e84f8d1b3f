"""Draw the packages and imports: ``python tests/tools/architecture_picture.py > docs/architecture.svg``.

Everything comes from the imports in the code. A package is one row above the highest package that it imports.
An import that follows from other imports is not drawn. A part of a feature belongs to the package in whose
layer it stands. Only the column of a package is chosen here.
"""

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from test_architecture import LAYERS, PUBLIC_FACADE, home, modules, own_imports  # noqa: E402

LOWEST = next(LAYERS[: i + 1] for i, layer in enumerate(LAYERS) if "optimizer.documents" in layer)
FOUNDATION = ", ".join(name.removeprefix("optimizer.") for layer in reversed(LOWEST) for name in layer)
"""One box for all modules up to the layer of `documents`."""
COLUMNS = {
    "library": 1,
    "starters": -1,
    "generate": -2,
    "fitting": 2,
    "compat": 3,
    "limits": -1,
    "milp": 1,
    "prices": 1,
}
"""Columns right of the middle; 0 for all others."""
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 118, 26, 150, 46, 12
Graph = dict[str, set[str]]


def package_of(module: str) -> str:
    """Return the box to which a module belongs."""
    parts = home(module).split(".")
    top = ".".join(parts[: 1 if parts[0] == "rest_server" else 2])
    return FOUNDATION if any(top in layer for layer in LOWEST) else top.removeprefix("optimizer.")


def graph() -> Graph:
    """Return the packages that each package imports, without those that only name everything."""
    found: Graph = defaultdict(set)
    for module in modules():
        for target in own_imports(module):
            if PUBLIC_FACADE not in {module, target} and package_of(module) != package_of(target):
                found[package_of(module)].add(package_of(target))
    return dict(found)


def reached(imports: Graph, start: str) -> set[str]:
    """Return every package that a package imports, itself or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports.get(waiting.pop(), set()) - found
        found |= new
        waiting += sorted(new)
    return found


def essential(imports: Graph) -> list[tuple[str, str]]:
    """Return the imports that do not follow from others (the transitive reduction)."""
    return [
        (source, target)
        for source in sorted(imports)
        for target in sorted(imports[source])
        if not any(target in reached(imports, other) for other in imports[source])
    ]


def rows(imports: Graph) -> dict[str, int]:
    """Return the row of each package, counted from the bottom."""

    @cache
    def row(package: str) -> int:
        return max((1 + row(target) for target in imports.get(package, ())), default=0)

    return {package: row(package) for package in sorted({FOUNDATION, *imports})}


def arrow(source: tuple[int, int], target: tuple[int, int], *, leaves_late: bool) -> str:
    """Return the path of an import; it changes columns below its source, or above its target."""
    (x0, y0), (x1, y1) = source, target
    y0, y1 = y0 + HEIGHT // 2, y1 - HEIGHT // 2 - 5
    gap = DOWN - HEIGHT - 5
    if leaves_late:
        straight, turn = f"V {y1 - gap}", f"C {x0} {y1 - gap // 2} {x1} {y1 - gap // 2} {x1} {y1}"
        return f"M {x0} {y0} {straight} {turn}"
    return f"M {x0} {y0} C {x0} {y0 + gap // 2} {x1} {y0 + gap // 2} {x1} {y0 + gap} V {y1}"


def picture() -> str:
    imports = graph()
    at = rows(imports)
    columns = {package: COLUMNS.get(package, 0) for package in at}
    assert len({(at[package], columns[package]) for package in at}) == len(at), "give new packages a column"
    left, top = min(columns.values()), max(at.values())
    places = {
        package: (
            MARGIN + WIDTH // 2 + (columns[package] - left) * ACROSS,
            MARGIN + HEIGHT // 2 + (top - at[package]) * DOWN,
        )
        for package in at
    }
    width = max(x for x, _ in places.values()) + WIDTH // 2 + MARGIN
    height = max(y for _, y in places.values()) + HEIGHT // 2 + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"',
        'font-size="13" font-family="sans-serif" role="img" aria-label="Packages and their imports">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="6" markerHeight="6"',
        'orient="90"><path d="M 0 0 L 8 4 L 0 8 z" fill="#52606d"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for source, target in essential(imports):
        late = abs(columns[source]) > abs(columns[target])
        path = arrow(places[source], places[target], leaves_late=late)
        lines.append(f'<path d="{path}" fill="none" stroke="#52606d" marker-end="url(#tip)"/>')
    for package, (x, y) in places.items():
        box = 7 * len(package) if package == FOUNDATION else WIDTH
        lines.append(
            f'<rect x="{x - box // 2}" y="{y - HEIGHT // 2}" width="{box}" height="{HEIGHT}" rx="5"'
            ' fill="#e4eef8" stroke="#2b6cb0"/>'
            f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="#102a43">{package}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture())
