"""Pictures of docs/loop.md. ``python tests/tools/loop_pictures.py`` writes them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "loop")]

from test_cycles import Loop  # noqa: E402

from optimizer.render.plots import draw  # noqa: E402
from optimizer.studies.figures.figure_document import Figure  # noqa: E402
from rest_server.loop.loop_figure import loop_figure  # noqa: E402

FOLDER = ROOT / "docs"


def step() -> Figure:
    """Return a step from 3 to 18 requests/s and back."""
    loop = Loop()
    records = loop.run(lambda t: 18 if 300 <= t < 900 else 3, 1800)
    events = {"18/s": 300.0, "3/s": 900.0}
    return loop_figure(records, "talk", "A step of six times the load", events)


def failure() -> Figure:
    """Return an outage of the source during which the load falls."""
    loop = Loop(replicas=4)
    loop.run(lambda _: 12, 600)
    loop.fleet.failing.add("fleet")
    loop.run(lambda _: 12, 900, 615)
    loop.fleet.failing.clear()
    loop.run(lambda _: 4, 1800, 915)
    events = {"source down": 600.0, "source up, 4/s": 900.0}
    return loop_figure(loop.records, "talk", "An outage of the source", events)


PICTURES = {"loop-step": step, "loop-failure": failure}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_bytes(draw(picture(), "svg"))
