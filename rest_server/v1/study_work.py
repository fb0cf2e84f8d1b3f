"""What the routes for studies compute: two plans side by side, why a plan is so, pages and pictures.

As in `rest_server.v1.work`: plain values in, the bytes of an answer out. A study has the time of a
request; what is not done by then ends with its process. What draws is imported where it draws.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from optimizer.errors import SpecError
from optimizer.plan import Plan, plan_from_value
from optimizer.spec.files import is_plan
from optimizer.spec.messages import validated
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.explanation.explain import explain
from optimizer.studies.figures.kinds import PLAN_KINDS, make_figure
from optimizer.studies.load_changes import scale_loads, vary_loads
from optimizer.studies.reports.report import make_report
from rest_server.settings import Settings
from rest_server.v1.models import CompareOptions, ExplainOptions, FigureOptions, ReportOptions, TwoSides
from rest_server.v1.work import system_from, system_of, value_of


def compare_body(body: bytes, options: CompareOptions, settings: Settings) -> bytes:
    """Return the comparison of the two sides in a body; of one system its unlimited with its limited plan.

    Raises:
        SpecError: a side is wrong, or there is nothing to compare; the text begins with the path.
    """
    value = value_of(body)
    if not any(key.lower() in {"first", "second"} for key in value):
        system = system_from(value, settings)
        after = _with_changed_load(system, options)
        if after is system:
            if options.unlimited is not None:
                raise SpecError(
                    "unlimited: both plans, limited and unlimited, are compared; remove it, or give two "
                    "sides or a change of the load"
                )
            return compare(system, **options.given()).to_json().encode()
        return compare(system, after, transition=True, **options.given()).to_json().encode()
    sides = validated(TwoSides, value)
    if options.scale is not None or options.random_load is not None:
        raise SpecError(
            "first: a changed load is compared with what one system has now; give that system alone, or the "
            "other load as second"
        )
    changed = sides.second_options
    found = compare(
        _side("first", sides.first, settings),
        None if sides.second is None else _side("second", sides.second, settings),
        second_options=None if changed is None else changed.model_dump(exclude_unset=True),
        transition=sides.transition,
        **options.given(),
    )
    return found.to_json().encode()


def _side(name: str, value: Mapping[str, Any], settings: Settings) -> System | Plan:
    try:
        return plan_from_value(value) if is_plan(value) else system_from(value, settings)
    except SpecError as error:
        raise SpecError(f"{name}.{error}") from None


def _with_changed_load(system: System, options: CompareOptions) -> System:
    """Return a system at the load that is asked for; the same system where none is."""
    if options.scale is not None and options.random_load is not None:
        raise SpecError("scale: the load is changed in one way only; remove it, or random_load")
    if options.scale is not None:
        return scale_loads(system, options.scale)
    if options.random_load is not None:
        return vary_loads(system, np.random.default_rng(options.random_load))
    return system


def explain_body(body: bytes, options: ExplainOptions, settings: Settings) -> bytes:
    """Return why the plan of the system in a body is as it is."""
    return explain(system_of(body, settings), options.server, **options.given()).to_json().encode()


def report_body(body: bytes, options: ReportOptions, settings: Settings) -> bytes:
    """Return a page on the plan of the system in a body."""
    system = system_of(body, settings).with_options(**options.given())
    report = make_report(system)
    if options.format == "json":
        return report.to_json().encode()
    from optimizer.render.pages import render_report

    return render_report(report, system, options.format).encode()


def figure_body(body: bytes, options: FigureOptions, settings: Settings) -> bytes:
    """Return a picture of the system in a body, or what it shows as numbers."""
    before = system_of(body, settings).with_options(**options.given())
    system = _with_changed_load(before, options)
    for name in ("server", "accelerator"):
        if getattr(options, name) is not None and options.kind in PLAN_KINDS:
            raise SpecError(f"{name}: {options.kind!r} shows the whole plan; remove it")
    figure = make_figure(
        system,
        options.kind,
        server=options.server,
        accelerator=options.accelerator,
        before=None if system is before else before,
    )
    if options.format == "json":
        return figure.to_json().encode()
    from optimizer.render.plots import draw

    return draw(figure, options.format)
