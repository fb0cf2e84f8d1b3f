"""Draw how a document becomes a plan: ``python tests/tools/architecture_picture.py > docs/architecture.svg``.

A box is a step with its packages. A test checks that each package of the program stands in one box.
"""

import sys

STEPS: dict[str, tuple[str, ...]] = {
    "documents": ("schema", "spec", "checking", "starters", "generate", "compat"),
    "token times": ("timing", "kinds", "profiles", "fitting"),
    "queue": ("queueing", "simulation"),
    "candidates": ("candidates", "limits", "prices", "topologies"),
    "optimum": ("milp", "solvers", "pipeline"),
    "plan": ("plan", "studies", "stabilisation"),
}
"""Packages of each step, in the order in which data pass through the steps."""
READERS: dict[str, tuple[str, ...]] = {
    "terminal and report": ("cli", "render"),
    "Python": ("jobs", "library"),
    "web page, service, control loop": ("rest_server",),
}
"""Packages of each reader of plans."""
WIDTH, HEIGHT, ACROSS, MARGIN, LINE, DOWN = 120, 124, 148, 12, 17, 176
TIP = """<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"
orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#52606d"/></marker></defs>"""


def box(x: int, y: int, width: int, title: str, packages: tuple[str, ...]) -> str:
    """Return a box with its title and the names of its packages, around a middle x, below a y."""
    height = HEIGHT if title in STEPS else 30 + LINE * len(packages)
    names = "".join(
        f'<text x="{x}" y="{y + 42 + LINE * i}" font-size="12" fill="#52606d">{name}</text>'
        for i, name in enumerate(packages)
    )
    return (
        f'<rect x="{x - width // 2}" y="{y}" width="{width}" height="{height + 10}" rx="6" fill="#e4eef8" '
        f'stroke="#2b6cb0"/>{names}'
        f'<text x="{x}" y="{y + 21}" font-weight="bold" fill="#102a43">{title}</text>'
    )


def arrow(path: str) -> str:
    """Return an arrow along a path."""
    return f'<path d="{path}" fill="none" stroke="#52606d" marker-end="url(#tip)"/>'


def picture() -> str:
    """Return the picture as SVG."""
    width = 2 * MARGIN + WIDTH + ACROSS * (len(STEPS) - 1)
    wide = (width - 2 * MARGIN) // len(READERS)
    last, middle = MARGIN + WIDTH // 2 + ACROSS * (len(STEPS) - 1), MARGIN + HEIGHT // 2
    bottom = MARGIN + HEIGHT + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {DOWN + 100}" width="{width}"',
        'font-size="14" font-family="sans-serif" text-anchor="middle" role="img"',
        'aria-label="From documents to a plan, and who reads it">',
        f'{TIP}<rect width="{width}" height="{DOWN + 100}" fill="#ffffff"/>',
    ]
    for i, (title, packages) in enumerate(STEPS.items()):
        x = MARGIN + WIDTH // 2 + ACROSS * i
        lines.append(box(x, MARGIN, WIDTH, title, packages))
        if i:
            lines.append(arrow(f"M {x - ACROSS + WIDTH // 2} {middle} H {x - WIDTH // 2 - 2}"))
    for i, (title, packages) in enumerate(READERS.items()):
        x = MARGIN + wide // 2 + wide * i
        lines.append(box(x, DOWN, wide - 28, title, packages))
        lines.append(arrow(f"M {last} {bottom} V {bottom + 14} H {x} V {DOWN - 2}"))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture())
