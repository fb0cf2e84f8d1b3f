"""Work of the study routes, which a solver process runs.

As in `rest_server.v1.work`, functions take plain values and return the bytes of a response body. If a study
exceeds the time limit of its request, its process is ended. Drawing libraries are imported only when they are
needed.
"""

from collections.abc import Mapping
from typing import Any

from optimizer.checking.checks import warned
from optimizer.errors import SpecError
from optimizer.jobs.comparing import compare_plans
from optimizer.jobs.requests import RequestError
from optimizer.jobs.table import STUDIES
from optimizer.plan import Plan, plan_from_value
from optimizer.schema import SystemSpec
from optimizer.schema.messages import validated
from optimizer.schema.recognition import is_plan
from optimizer.spec.system import System
from rest_server.settings import Settings
from rest_server.sizing_memo import memo_of_process
from rest_server.v1.models import CompareOptions, OtherSide, TwoSides
from rest_server.v1.work import system_from, system_of, value_of

_NAMES = {"second_options": "secondOptions"}
"""Names of request fields in documents, if they differ from the Python names."""


def study_body(source: bytes | SystemSpec, name: str, options: Any, settings: Settings) -> bytes:
    """Return the result of a study as the body of a response.

    Args:
        source: body of the request, or the document of the fleet.
        name: name of the study in the table of studies.
        options: options of the study.
        settings: settings of the service.
    """
    study = STUDIES[name].study
    system = options.applied(system_of(source, settings))
    answer = warned(study.answered(system, options), system, memo_of_process(settings.sizing_memo_rows))
    if getattr(options, "format", "json") == "json" or study.page is None:
        text: str = answer.to_json()
        return text.encode()
    return study.page(answer, system, options)


def compare_body(body: bytes, options: CompareOptions, settings: Settings) -> bytes:
    """Return the comparison of the two sides in a body, or of a single system's unlimited and limited plans.

    Raises:
        SpecError: a side is invalid, or there is nothing to compare; the message starts with the path.
    """
    value = value_of(body)
    if not any(key.lower() in {"first", "second"} for key in value):
        return _compared(system_from(value, settings), OtherSide(), options, settings)
    sides = validated(TwoSides, value)
    return _compared(_side("first", sides.first, settings), sides, options, settings)


def compare_fleet(fleet: SystemSpec, body: bytes, options: CompareOptions, settings: Settings) -> bytes:
    """Return the comparison of a fleet with the other side in a body.

    If the body is empty, the fleet's unlimited and limited plans are compared.

    Args:
        fleet: document of the fleet.
        body: body of the request; can be empty.
        options: query parameters.
        settings: settings of the service.

    Raises:
        SpecError: a side is invalid, or there is nothing to compare; the message starts with the path.
    """
    other = validated(OtherSide, value_of(body)) if body.strip() else OtherSide()
    return _compared(system_of(fleet, settings), other, options, settings)


def _compared(first: System | Plan, other: OtherSide, options: CompareOptions, settings: Settings) -> bytes:
    changed = other.second_options
    second = None if other.second is None else _side("second", other.second, settings)
    try:
        compared = compare_plans(
            first,
            second,
            options,
            second_options=None if changed is None else changed.model_dump(exclude_unset=True),
            transition=other.transition,
        )
    except RequestError as error:
        raise SpecError(error.said(lambda field: _NAMES.get(field, field))) from None
    return compared.to_json().encode()


def _side(name: str, value: Mapping[str, Any], settings: Settings) -> System | Plan:
    try:
        return plan_from_value(value) if is_plan(value) else system_from(value, settings)
    except SpecError as error:
        raise SpecError(f"{name}.{error}") from None
