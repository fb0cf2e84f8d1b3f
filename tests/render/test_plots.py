"""Drawn figures: they parse, say what they must, nothing is cut off; the same figure is the same bytes."""

import itertools
import re
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from builders import accelerator, profile, server, service_class
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from slow_cases import mostly_slow

from optimizer import Figure, System, draw, load_system, make_figure, scale_loads, vary_loads
from optimizer.generate import generate_document
from optimizer.render import plots
from optimizer.render.colours import type_colours
from optimizer.render.plots.bars import NUMBER_PT, _label
from optimizer.render.plots.curves import _apart
from optimizer.render.plots.grids import STRIPE_MM
from optimizer.render.plots.style import WIDTH_MM, drawing, width_mm
from optimizer.studies.figures.figure_document import (
    Bar,
    BarPanel,
    Cell,
    CurvePanel,
    GridPanel,
    ReferenceLine,
    Series,
)
from optimizer.studies.figures.making import FIGURES, PLAN_FIGURES

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
MADE = ["plan", *(kind for kind in FIGURES if kind not in PLAN_FIGURES)]
"""What covers everything that is drawn: the other kinds of plans are parts of the first."""
SHOWN = [*MADE, "change"]
EVIL = '<script>alert("1")</script> & $x_{1}$ \\frac \x01 ＡＩ \u202e' + "M" * 60

LARGEST = mostly_slow(["crowded", "many"], 1)
LARGE_NUMBERS = Figure(
    title="Large numbers",
    panels=tuple(
        CurvePanel(title="t", x_label="x", y_label="y", series=(Series(name="", x=(0, 1), y=(0, most)),))
        for most in (40.0, 250_000.0, 999_999.0, 1.5e9, 0.000123456)
    ),
)


@pytest.fixture(scope="module")
def large() -> System:
    return load_system(ROOT / "specs" / "large")


@pytest.fixture(scope="module")
def figures(large: System) -> dict[str, Figure]:
    found = {
        kind: make_figure(large, kind, server=None if kind in PLAN_FIGURES else "Premium-llama_70b")
        for kind in [*MADE, "types"]
    }
    many = load_system(generate_document(80, 6, 3, seed=1))
    mixed = load_system(ROOT / "specs" / "small").with_options(heterogeneous=True)
    crowded = load_system(generate_document(60, 9, 4, seed=5))
    rng = np.random.default_rng(3)
    return found | {
        "change": make_figure(scale_loads(large, 1.2), "plan", before=large),
        "many": make_figure(many, "plan"),
        "mixed": make_figure(mixed, "assignment"),
        "crowded": make_figure(vary_loads(crowded, rng), "plan", before=crowded),
        "wide": make_figure(wide(), "plan"),
        "large-numbers": LARGE_NUMBERS,
        "wide-cost": make_figure(wide(), "cost", server="M" * 60 + "0"),
    }


Drawn = Callable[[str], MatplotlibFigure]


@pytest.fixture(scope="module")
def drawn(figures: dict[str, Figure]) -> Drawn:
    """Return what draws a figure, once for all that look at it."""

    return cache(lambda kind: laid_out(figures[kind]))


def laid_out(figure: Figure) -> MatplotlibFigure:
    """Draw a figure, so that all in it has its place."""
    with drawing():
        canvas = plots._drawn(figure)
        agg = canvas.canvas
        assert isinstance(agg, FigureCanvasAgg)
        agg.draw()  # type: ignore[no-untyped-call]
    return canvas


def canvas_of(*panels: CurvePanel | BarPanel | GridPanel) -> MatplotlibFigure:
    return laid_out(Figure(title="t", panels=panels))


def wide() -> System:
    """Return a system whose names have no room anywhere."""
    accelerators, classes, models = ([f"{sign * 60}{i}" for i in range(4)] for sign in ("W", "名", "m"))
    return load_system(
        {
            "accelerators": [accelerator(name) for name in accelerators],
            "models": [profile(model, name) for model in models for name in accelerators],
            "serviceClasses": [service_class(name, i + 1, models=models) for i, name in enumerate(classes)],
            "servers": [
                server(f"{'M' * 60}{i}", 90, model=models[i // 4], service=classes[i % 4]) for i in range(16)
            ],
            "optimizer": {"unlimited": True},
        }
    )


def texts(svg: bytes) -> list[str]:
    """Return the texts of an SVG file, which must be well-formed."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHOWN)
def test_a_drawn_figure_says_its_title_axes_units_and_names(kind: str, figures: dict[str, Figure]) -> None:
    figure = figures[kind]
    said = texts(draw(figure, "svg"))
    wanted = [figure.title]
    for panel in figure.panels:
        wanted.append(panel.title)
        if isinstance(panel, CurvePanel):
            wanted += [panel.x_label, panel.y_label, *(guide.name for guide in panel.guides)]
            wanted += [series.name for series in panel.series]
        elif isinstance(panel, BarPanel):
            wanted += [line for column in panel.columns for line in column.split("\n")]
            wanted += [bar.name for bar in panel.bars] + [bar.group for bar in panel.bars]
        else:
            wanted += [*panel.columns, *panel.rows]
            wanted += [line for row in panel.cells for cell in row for line in cell.text.split("\n")]
    whole = "\n".join(said)
    assert not [text for text in wanted if text not in whole]
    assert "None" not in whole
    assert "nan" not in whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", mostly_slow([*SHOWN, *LARGEST, "mixed", "wide", "wide-cost", "large-numbers"], 10)
)
def test_nothing_is_cut_off_and_no_text_stands_on_another(kind: str, drawn: Drawn) -> None:
    canvas = drawn(kind)
    with drawing():
        page = canvas.bbox
        hidden = set().union(*(_undrawn_ticks(axes) for axes in canvas.axes))
        seen = [
            text
            for text in canvas.findobj(Text)
            if isinstance(text, Text)
            and text.get_visible()
            and text.get_text().strip()
            and text not in hidden
        ]
        boxes = [(text.get_text(), text.get_window_extent()) for text in seen]
    for text, box in boxes:
        assert box.x0 >= page.x0 - 1, text
        assert box.x1 <= page.x1 + 1, text
        assert box.y0 >= page.y0 - 1, text
        assert box.y1 <= page.y1 + 1, text
    corners = np.array([box.extents for _, box in boxes])
    for i, (text, box) in enumerate(boxes):
        common = np.minimum(corners[:i, 2:], box.max) - np.maximum(corners[:i, :2], box.min)
        others = np.flatnonzero((common > 1).all(axis=1))
        assert not len(others), f"{text!r} stands on {boxes[others[0]][0]!r}"


@pytest.mark.slow
def test_a_type_has_one_colour_in_all_pictures(large: System) -> None:
    shades: dict[str, set[str]] = {}
    full: dict[str, set[str]] = {}
    plans = (large.with_options(unlimited=True), large.with_options(unlimited=False), scale_loads(large, 0.1))
    for system in plans:
        (panel,) = make_figure(system, "assignment").panels
        assert isinstance(panel, GridPanel)
        canvas = canvas_of(panel)
        patches = [patch for axes in canvas.axes for patch in axes.patches if isinstance(patch, Rectangle)]
        fields = [patch for patch in patches if patch.get_width() > STRIPE_MM]
        stripes = [patch for patch in patches if patch.get_width() == STRIPE_MM]
        assert len(stripes) == len(fields)
        cells = [cell for row in panel.cells for cell in row]
        for cell, field, stripe in zip(cells, fields, stripes, strict=True):
            shades.setdefault(cell.group, set()).add(to_hex(field.get_facecolor()))
            full.setdefault(cell.group, set()).add(to_hex(stripe.get_facecolor()).upper())
    assert all(len(found) == 1 for found in shades.values())
    assert len({found.pop() for found in shades.values()}) == len(shades)
    colours = type_colours(make_figure(large, "types").types)
    assert full == {name: {colours[name]} for name in full}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["types", "targets", "cost", "latency"])
def test_type_colours_are_used_for_types_only(kind: str, large: System) -> None:
    figure = make_figure(large, kind, server=None if kind in PLAN_FIGURES else "Premium-llama_70b")
    colours = type_colours(figure.types)
    assert figure.types == tuple(sorted({item.type for item in large.accelerators.values()}))
    assert len(set(colours.values())) == len(colours)
    canvas = laid_out(figure)
    for panel, axes in zip(figure.panels, canvas.axes, strict=False):
        if isinstance(panel, CurvePanel):
            drawn = {to_hex(line.get_color()).upper() for line in axes.lines}
            drawn |= {to_hex(patch.get_facecolor()).upper() for patch in axes.patches}
            about = {series.type for series in panel.series if series.type}
        else:
            assert isinstance(panel, BarPanel)
            drawn = {to_hex(patch.get_facecolor()).upper() for patch in axes.patches}
            about = {bar.type for bar in panel.bars if bar.values[0]}
        assert drawn & set(colours.values()) == {colours[name] for name in about}
        assert about


def brightness(colour: Any) -> float:
    """Return the relative luminance of a colour as WCAG 2 defines it."""
    parts = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


@pytest.mark.parametrize("kind", [*SHOWN, *LARGEST])
def test_every_text_stands_out_from_what_is_behind_it(
    kind: str, figures: dict[str, Figure], drawn: Drawn
) -> None:
    """At least 4.5 to 1, as WCAG 2 asks for."""
    canvas = drawn(kind)
    white = brightness("white")
    shades = {
        brightness(patch.get_facecolor())
        for panel, axes in zip(figures[kind].panels, canvas.axes, strict=False)
        if isinstance(panel, GridPanel)
        for patch in axes.patches
        if isinstance(patch, Rectangle) and patch.get_width() > STRIPE_MM
    }
    for text in canvas.findobj(Text):
        assert isinstance(text, Text)
        mine = brightness(text.get_color())
        for ground in (white, *(shades if mine == 0 else ())):  # only what is black stands in fields
            assert (ground + 0.05) / (mine + 0.05) >= 4.5, text.get_text()
    assert shades or not any(isinstance(panel, GridPanel) for panel in figures[kind].panels)


def test_text_of_a_field_stays_within_its_field(drawn: Drawn) -> None:
    for name in ("crowded", "wide", "mixed"):
        canvas = drawn(name)
        with drawing():
            fields = [patch.get_window_extent() for axes in canvas.axes for patch in axes.patches]
            for text in canvas.texts:
                box = text.get_window_extent()
                for field in fields:
                    begins_inside = field.x0 <= box.x0 <= field.x1 and field.y0 <= box.y0 <= field.y1
                    assert not begins_inside or box.x1 <= field.x1 + 1, text.get_text()


def test_a_number_too_small_to_matter_is_not_written_out() -> None:
    values = (0.0, 1e-169, 0.004, 0.01, 12.345)
    bars = tuple(Bar(name=str(i), values=(value,)) for i, value in enumerate(values))
    said = texts(draw(Figure(title="t", panels=(BarPanel(title="p", columns=("c",), bars=bars),)), "svg"))
    assert sorted(said) == sorted(["t", "p", "c", *"01234", "0", "<0.01", "<0.01", "0.01", "12.3"])


@pytest.mark.parametrize(("value", "share"), [(6e-10, 0), (0.009, 0.09), (0.5, 1), (0, 0)])
def test_a_number_that_is_next_to_nothing_has_no_long_bar(value: float, share: float) -> None:
    panel = BarPanel(title="p", columns=("wait\n[ms]",), bars=(Bar(name="a", values=(value,)),))
    (axes,) = canvas_of(panel).axes
    widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
    room = width_mm(_label(value, None, None, None), NUMBER_PT) + 1
    full = axes.get_xlim()[1] * (1 - room / (axes.get_position().width * WIDTH_MM))
    assert sum(widths) / full == pytest.approx(share, abs=1e-3)


def test_numbers_of_any_size_stay_within_their_column() -> None:
    values = (1e15, 1e9, 12345678.9, 9999999.4, 10.0, None)
    columns = tuple(f"c{i}" for i in range(len(values)))
    bar = Bar(name="a", group="g", values=values, marks=values)
    wide = BarPanel(title="w", columns=columns, bars=(bar,), mark="before")
    few = Bar(name="a", values=values[:3], marks=values[1:4])
    spacious = BarPanel(title="s", columns=columns[:3], bars=(few,), mark="before")
    canvas = canvas_of(wide, spacious)
    with drawing():
        for axes in canvas.axes:
            (label,) = axes.texts
            assert label.get_window_extent().x1 <= axes.get_window_extent().x1 + 1, label.get_text()


def _undrawn_ticks(axes: Axes) -> set[Text]:
    """Return the labels of ticks beyond the ends of an axis, which are there but not drawn."""
    found = set()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not axes.axison or not low <= tick.get_loc() <= high:
                found |= {tick.label1, tick.label2}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("file_format", mostly_slow(["pdf", "svg", "png"], 2))
def test_the_same_figure_is_the_same_bytes(file_format: plots.Format, figures: dict[str, Figure]) -> None:
    for kind in ("types", "latency") if file_format == "svg" else ("latency",):
        first = draw(figures[kind], file_format)
        assert first == draw(figures[kind], file_format)
        assert first.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[file_format])
        assert not re.search(rb"20\d\d-\d\d-\d\d", first)


def test_a_name_is_text_whatever_it_holds() -> None:
    """Not markup, not a formula, not a control character; and no warning for a sign the font lacks."""
    figure = Figure(
        title=EVIL,
        note=EVIL,
        panels=(
            CurvePanel(
                title=EVIL, x_label="x", y_label="y",
                series=(Series(name=EVIL, x=(0, 1), y=(1, 2)), Series(name=EVIL, x=(0, 1), y=(1, 2))),
                guides=(
                    ReferenceLine(name=EVIL, value=0.5, axis="x"),
                    ReferenceLine(name=EVIL, value=1.5, axis="y"),
                ),
            ),
            BarPanel(title=EVIL, columns=("a",), bars=(Bar(name=EVIL, group=EVIL, values=(1,)),), mark="m"),
            GridPanel(title=EVIL, columns=(EVIL,), rows=(EVIL,), cells=((Cell(text=EVIL, group=EVIL),),)),
        ),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = draw(figure, "svg")
        draw(figure, "png")
    assert b"<script" not in svg
    assert b"\x01" not in svg
    assert any(text.startswith('<script>alert("1")</script> & $x_{1}$ \\frac ?') for text in texts(svg))


@pytest.mark.slow
def test_a_figure_of_a_system_with_such_names_is_drawn() -> None:
    source = {
        "accelerators": [accelerator(EVIL[:200])],
        "models": [profile("<b>m</b>", EVIL[:200])],
        "serviceClasses": [service_class("$\\alpha$", models=["<b>m</b>"])],
        "servers": [server("</text><script>", model="<b>m</b>", service="$\\alpha$")],
        "optimizer": {"unlimited": True},
    }
    system = load_system(source)
    for kind in MADE:
        svg = draw(make_figure(system, kind), "svg")
        assert b"<script" not in svg
        assert texts(svg)


def test_an_empty_figure_is_its_words() -> None:
    figure = Figure(title="Occupancy: s", note="Nothing to show: s is idle")
    assert texts(draw(figure, "svg")) == ["Occupancy: s", "Nothing to show: s is idle"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "panel",
    [
        CurvePanel(title="t", x_label="x", y_label="y", series=()),
        CurvePanel(title="t", x_label="x", y_label="y", series=(Series(name="", x=(1,), y=(None,)),)),
        CurvePanel(title="t", x_label="x", y_label="y", series=(Series(name="n", x=(3,), y=(0,)),)),
        CurvePanel(title="t", x_label="x", y_label="y", series=(Series(name="", x=(1e-9,), y=(1e12,)),)),
        BarPanel(title="t", columns=("a", "b"), bars=()),
        BarPanel(title="t", columns=("a",), bars=(Bar(name="n", values=(None,), marks=(None,)),), mark="m"),
        BarPanel(title="t", columns=("a",), bars=(Bar(name="n", values=(0,), marks=(3,)),), mark="m"),
        GridPanel(title="t", columns=(), rows=(), cells=()),
        GridPanel(title="t", columns=(" ",), rows=(" ",), cells=((Cell(text=" "),),)),
    ],
)  # fmt: skip
def test_a_panel_with_little_or_nothing_in_it_is_drawn(panel: CurvePanel | BarPanel | GridPanel) -> None:
    assert "t" in texts(draw(Figure(title="f", panels=(panel,)), "svg"))


@pytest.mark.slow
def test_drawing_is_thread_safe_and_keeps_library_settings(figures: dict[str, Figure]) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    expected = draw(figures["latency"], "svg")
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(draw(figures["latency"], "svg"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("y", "target", "logarithmic", "words"),
    [
        ((8, 28), 320, (), "target: far above"),
        ((8, 28), 60, (), "target"),
        ((8, 28), 1, (), "target"),  # the axis begins at zero
        ((800, 28000), 90000, ("y",), "target: far above"),
        ((800, 28000), 100, ("y",), "target: far below"),
        ((800, 28000), 500, ("y",), "target"),
        ((0, 28000), 500, ("x", "y"), "target"),
        ((None, None), 500, (), "target"),
    ],
)
def test_a_far_level_is_noted_and_does_not_squash_points(
    y: tuple[float | None, ...], target: float, logarithmic: tuple[Literal["x", "y"], ...], words: str
) -> None:
    panel = CurvePanel(
        title="t", x_label="x", y_label="y", series=(Series(name="", x=(1, 2), y=y, style="points"),),
        guides=(ReferenceLine(name="target", value=target, axis="y"),), logarithmic=logarithmic,
    )  # fmt: skip
    canvas = canvas_of(panel)
    (axes,) = canvas.axes
    assert words in [text.get_text() for text in canvas.findobj(Text) if isinstance(text, Text)]
    low, high = axes.get_ylim()
    assert (low <= target <= high) == (words == "target")
    values = [value for value in y if value is not None]
    assert all(low <= value <= high for value in values)
    assert high <= 2.8 * max([*values, 200])


def test_labels_keep_their_distance_and_their_order() -> None:
    moved = _apart([0.5, 0.5, 0.51, 0.99], [0.1] * 4)
    assert all(b - a >= 0.1 - 1e-12 for a, b in itertools.pairwise(moved))
    assert moved[0] >= 0.05 - 1e-12
    assert moved[-1] <= 0.95 + 1e-12
    assert _apart([0.2, 0.8], [0.1, 0.1]) == [0.2, 0.8]


def test_numbers_in_fields_are_never_shortened() -> None:
    """Rows give way to them; names beside a number are shortened where both have no room."""
    loads = ("219.4/min, 1,024 → 1,024", "14/min, 128 → 256", "", "3,600/min, 4,096 → 1,024", "9/min, 1 → 1")
    counts = ("10 × 2xT04", "1 × 4xT00", "1,024 × T1", "3 × T00 + 12 × 2xT03", "not served")
    for texts_of_row in (loads, counts):
        cells = (tuple(Cell(text=text) for text in texts_of_row),)
        rows = ("meta-llama/Llama-3.1-70B-Instruct-FP8-dynamic",)
        panel = GridPanel(title="t", columns=tuple("abcde"), rows=rows, cells=cells)
        drawn = " ".join(texts(draw(Figure(title="t", panels=(panel,)), "svg"))).split()
        words = {word for text in texts_of_row for word in text.split()}
        assert words - set(drawn) == set()


def test_names_of_points_stand_next_to_their_lines() -> None:
    """Measured points of a fit are listed first, but their curve ends at the bottom."""
    series = []
    for name, end in (("256/512", 1.0), ("1,024/128", 10.0), ("2,048/64", 100.0)):
        x, y = (1.0, 2.0), (end / 2, end)
        series.append(Series(name=f"{name} predicted", x=x, y=y))
        series.append(Series(name=name, x=x, y=y, style="points"))
    panel = CurvePanel(title="p", x_label="x", y_label="y", series=tuple(series), logarithmic=("y",))
    heights = {text.get_text(): text.get_position()[1] for text in canvas_of(panel).axes[0].texts}
    order = sorted(heights, key=lambda name: heights[name])
    assert [name.split()[0] for name in order] == ["256/512"] * 2 + ["1,024/128"] * 2 + ["2,048/64"] * 2
