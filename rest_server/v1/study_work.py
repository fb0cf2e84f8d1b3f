"""What the routes for studies compute: two plans side by side, why a plan is so, pages and pictures.

As in `rest_server.v1.work`: plain values in, the bytes of an answer out. A study has the time of a
request; what is not done by then ends with its process. What draws is imported where it draws.
"""

from collections.abc import Mapping
from typing import Any

from optimizer.errors import SpecError
from optimizer.jobs import (
    CompareRequest,
    Effort,
    FigureRequest,
    LoadChange,
    RepairRequest,
    RequestError,
    SimulateRequest,
    compare_plans,
    explain,
    make_report,
    repair_plan,
    show_figure,
    simulate_plan,
)
from optimizer.plan import Plan, plan_from_value
from optimizer.spec.messages import validated
from optimizer.spec.recognition import is_plan
from optimizer.spec.schema import SystemSpec
from optimizer.spec.system import System
from rest_server.settings import Settings
from rest_server.v1.models import (
    CompareOptions,
    ExplainOptions,
    FigureOptions,
    OtherSide,
    ReportOptions,
    SimulateOptions,
    TwoSides,
)
from rest_server.v1.work import system_from, system_of, value_of

_NAMES = {"second_options": "secondOptions"}
"""What the fields of a request are called in documents, where that is not as in Python."""


def compare_body(body: bytes, options: CompareOptions, settings: Settings) -> bytes:
    """Return the comparison of the two sides in a body; of one system its unlimited with its limited plan.

    Raises:
        SpecError: a side is wrong, or there is nothing to compare; the text begins with the path.
    """
    value = value_of(body)
    if not any(key.lower() in {"first", "second"} for key in value):
        return _compared(system_from(value, settings), OtherSide(), options, settings)
    sides = validated(TwoSides, value)
    return _compared(_side("first", sides.first, settings), sides, options, settings)


def compare_fleet(fleet: SystemSpec, body: bytes, options: CompareOptions, settings: Settings) -> bytes:
    """Return the comparison of a fleet with the other side in a body; without one as of a system alone.

    Raises:
        SpecError: a side is wrong, or there is nothing to compare; the text begins with the path.
    """
    other = validated(OtherSide, value_of(body)) if body.strip() else OtherSide()
    return _compared(system_of(fleet, settings), other, options, settings)


def _compared(first: System | Plan, other: OtherSide, options: CompareOptions, settings: Settings) -> bytes:
    changed = other.second_options
    request = CompareRequest(
        first=first,
        second=None if other.second is None else _side("second", other.second, settings),
        second_options=None if changed is None else changed.model_dump(exclude_unset=True),
        transition=other.transition,
        load=_load_change(options),
        solve=options.solve(),
    )
    try:
        return compare_plans(request).to_json().encode()
    except RequestError as error:
        raise SpecError(error.said(lambda field: _NAMES.get(field, field))) from None


def _side(name: str, value: Mapping[str, Any], settings: Settings) -> System | Plan:
    try:
        return plan_from_value(value) if is_plan(value) else system_from(value, settings)
    except SpecError as error:
        raise SpecError(f"{name}.{error}") from None


def _load_change(options: CompareOptions) -> LoadChange:
    return LoadChange(scale=options.scale, random_load=options.random_load)


def explain_body(body: bytes | SystemSpec, options: ExplainOptions, settings: Settings) -> bytes:
    """Return why the plan of the system in a body is as it is."""
    return explain(system_of(body, settings), options.server, **options.given()).to_json().encode()


def report_body(body: bytes | SystemSpec, options: ReportOptions, settings: Settings) -> bytes:
    """Return a page on the plan of the system in a body."""
    system = system_of(body, settings).with_options(**options.given())
    effort = Effort(requests=options.requests, seed=options.seed) if options.simulate else None
    report = make_report(system, effort=effort)
    if options.format == "json":
        return report.to_json().encode()
    from optimizer.render.pages import render_report

    return render_report(report, system, options.format).encode()


def simulate_body(body: bytes | SystemSpec, options: SimulateOptions, settings: Settings) -> bytes:
    """Return what the pools of the plan of the system in a body do when simulated, repaired if asked for."""
    system = system_of(body, settings).with_options(**options.given())
    if options.repair:
        repair = RepairRequest(system, requests=options.requests, seed=options.seed)
        return repair_plan(repair).to_json().encode()
    request = SimulateRequest(system, requests=options.requests, seed=options.seed)
    return simulate_plan(request).to_json().encode()


def figure_body(body: bytes | SystemSpec, options: FigureOptions, settings: Settings) -> bytes:
    """Return a picture of the system in a body, or what it shows as numbers."""
    figure = show_figure(
        FigureRequest(
            system=system_of(body, settings).with_options(**options.given()),
            kind=options.kind,
            server=options.server,
            accelerator=options.accelerator,
            load=_load_change(options),
        )
    )
    if options.format == "json":
        return figure.to_json().encode()
    from optimizer.render.plots import draw

    return draw(figure, options.format)
