"""Figure of a fit: measured and predicted times of every run."""

from collections.abc import Sequence

from optimizer.fitting.profile import FittedProfile, MeasuredPoint
from optimizer.fitting.runs import BenchmarkRun, shape_name, shapes_of
from optimizer.quantities import counted
from optimizer.studies.figures.figure_document import CurvePanel, Figure, XAxis

FIGURES = (
    ("ttft_ms", "Time to first token (median)", "TTFT [ms]"),
    ("itl_ms", "Time between tokens (mean)", "ITL [ms]"),
)
MAX_SHAPES = 6
"""Maximum number of request shapes in one panel, so that the curves can be distinguished."""


def fit_figure(profile: FittedProfile) -> Figure:
    """Return the figure of measured and predicted times by completed rate, for each request shape."""
    pairs = [(point, point.run()) for point in profile.points if point.itl_ms or point.ttft_ms]
    if not pairs:
        return Figure(title=_title(profile), note="Nothing to show: the profile has no measured points.")
    shapes = shapes_of(run for _, run in pairs)
    parts = [shapes[i : i + MAX_SHAPES] for i in range(0, len(shapes), MAX_SHAPES)]
    panels = [
        _panel(pairs, part, name, title, unit)
        for name, title, unit in FIGURES
        for part in parts
        if any(getattr(point, name) for point, run in pairs if run.shape in part)
    ]
    errors = profile.fit.errors
    note = (
        f"Points: measured; lines: predicted. {counted(errors.runs, 'run')} fitted, "
        f"TTFT {errors.ttft:.1%} off, ITL {errors.itl:.1%} (sum of errors over sum of times)."
    )
    if profile.fit.held_out is not None:
        note += f" Held out, and shown as well: {counted(profile.fit.held_out.runs, 'run')}."
    return Figure(title=_title(profile), note=note, panels=tuple(panels))


def _title(profile: FittedProfile) -> str:
    return f"Measured and predicted: {profile.name} on {profile.acc_count} × {profile.accelerator}"


def _panel(
    pairs: Sequence[tuple[MeasuredPoint, BenchmarkRun]],
    shapes: Sequence[tuple[int, int]],
    name: str,
    title: str,
    unit: str,
) -> CurvePanel:
    curves, axis = [], XAxis("completed [requests/s]", ())
    for shape in shapes:
        mine = [point for point, run in pairs if run.shape == shape and getattr(point, name)]
        mine = sorted(mine, key=lambda point: point.throughput_rps or point.rate_rps or 0.0)
        axis = axis._replace(x=[point.throughput_rps or point.rate_rps for point in mine])
        predicted, measured = ([getattr(point, key) for point in mine] for key in (f"predicted_{name}", name))
        curves.append(axis.curve(f"{shape_name(shape)} predicted", predicted))
        curves.append(axis.curve(shape_name(shape), measured, "points"))
    shown = ", ".join(map(shape_name, shapes))
    return axis.panel(f"{title}: {shown} tokens", unit, curves, logarithmic=("x", "y"))
