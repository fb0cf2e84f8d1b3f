"""Pictures of docs/loop.md. ``python tests/loop/loop_pictures.py`` writes them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from test_cycles import Loop

from optimizer.render.plots import draw
from optimizer.studies.figures.figure_document import CurvePanel, Figure, Series
from rest_server.loop.loop_figure import loop_figure

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

FOLDER = Path(__file__).resolve().parents[2] / "docs"


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


POINT_S = 300.0
"""Time between two points of the day [s]."""


def whole_day() -> Figure:
    """Return the day with bursts of the comparison of rules (`tests/benchmarks/scaling_rules.py`), seed 1."""
    import scaling_rules as rules

    arrivals, works = rules.day(1, bursts=True)
    service, loop = rules.Service(arrivals, works, 4), rules.Loop(rules.config())
    hours, ready, desired, planned = [], [], [], []
    for k in range(1, round(rules.DAY_S / rules.PERIOD_S) + 1):
        seen = service.run(k * rules.PERIOD_S)
        service.scale(loop(seen))
        if seen.now_s % POINT_S == 0 and loop.outcome is not None:
            hours.append(seen.now_s / 3600)
            ready.append(seen.ready)
            desired.append(service.desired)
            planned.append(loop.outcome.loads["s"].planned_rps)
    edges = POINT_S * np.arange(len(hours) + 1)
    count = np.histogram(arrivals, edges)[0]
    slow = np.histogram(arrivals, edges, weights=(service.end_s - arrivals > rules.SLOW_S) * 1.0)[0] / count
    x = tuple(hours)

    def panel(title: str, y_label: str, **curves: Sequence[float]) -> CurvePanel:
        series = tuple(Series(name=name, x=x, y=tuple(y), style="line") for name, y in curves.items())
        return CurvePanel(title=title, x_label="time [h]", y_label=y_label, series=series)

    return Figure(
        title="A day with three bursts that no forecast knows",
        panels=(
            panel("Rates", "rate [requests/s]", planned=planned, arrivals=(count / POINT_S).tolist()),
            panel("Replicas", "replicas", desired=desired, ready=ready),
            panel("Requests above 0.7 s", "share [%]", slow=(100 * slow).tolist()),
        ),
    )


PICTURES = {"loop-step": step, "loop-day": whole_day, "loop-failure": failure}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_bytes(draw(picture(), "svg"))
