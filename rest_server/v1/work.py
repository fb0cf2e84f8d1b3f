"""Work of the routes of /v1: turns the bytes of a body into the bytes of an answer.

Bodies are parsed like files, with the same messages. Functions take and return plain values, so that they can
run in another process; they are independent of HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import to_json

from optimizer.candidates import find_candidates
from optimizer.compat.row_types import is_row, kind_of_row
from optimizer.documents import Document
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.memory import MemoryQuestion, memory_of
from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing, analyze_replicas, size_replicas
from optimizer.kinds.rows import Row
from optimizer.pipeline import Timings, solve
from optimizer.schema import SystemSpec
from optimizer.schema.files import Part, json_value, spec_from_value
from optimizer.schema.messages import json_type, validated
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System, join_parts
from optimizer.stabilisation.decisions import Decisions, Observation
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import plan_next
from rest_server.limits import check_size
from rest_server.settings import Settings
from rest_server.sizing_memo import memo_of_process
from rest_server.v1.models import (
    MAX_ITEMS,
    Analyses,
    Analysis,
    Performances,
    PlanOptions,
    SizingOptions,
    SizingProblem,
    SizingProblems,
    Sizings,
    Unattainable,
)

BODY = "body"
"""Name of the body in messages about its entire text."""
_Item = TypeVar("_Item", Analysis, SizingProblem)
_Items = TypeVar("_Items", Analyses, SizingProblems)
_Answer = TypeVar("_Answer")


def value_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises:
        SpecError: the body is not UTF-8, not JSON, has a duplicate key, or is not an object.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise SpecError(f"{BODY}: not UTF-8 text (byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise SpecError(f"{BODY}: it begins with a byte-order mark; send UTF-8 without one")
    value = json_value(text, BODY)
    if not isinstance(value, dict):
        raise SpecError(f"{BODY}: an object with keys is expected, this holds {json_type(value)}")
    return value


def system_of(source: bytes | SystemSpec, settings: Settings) -> System:
    """Return the cross-checked system in a body, bare or in the reference's wrappers.

    Args:
        source: the body, or the document of a fleet, whose parts are already valid; in a fleet, lengths
            that are not stated are 0.
        settings: settings with the size limits.

    Raises:
        SpecError: the document breaks the schema, contradicts itself, or exceeds the size limits.
    """
    if isinstance(source, SystemSpec):
        return join_parts([Part(source)], lengths_optional=True)
    return system_from(value_of(source), settings)


def system_from(value: Mapping[str, Any], settings: Settings) -> System:
    """Return the cross-checked system in plain values.

    Raises:
        SpecError: under the same conditions as in `system_of`.
    """
    spec = spec_from_value(value)
    check_size(spec, settings)
    return join_parts([Part(spec)])


def plan_body(body: bytes, options: PlanOptions, settings: Settings) -> tuple[bytes, dict[str, float]]:
    """Return the plan of the system in a body, and the time of each stage [s]."""
    return _planned(options.applied(system_of(body, settings)), settings)


def memory_text(question: MemoryQuestion, _settings: Settings) -> bytes:
    """Return the requests that fit in memory."""
    return memory_of(question).model_dump_json(by_alias=True).encode()


@dataclass(frozen=True, slots=True)
class RunningFleet:
    """A consistent fleet, and the state of its replicas."""

    spec: SystemSpec
    """The fleet, with the loads to plan for."""
    rules: Rules
    """Stabilisation rules."""
    decisions: Decisions | None
    """Previous decisions; None if there are none."""
    seen: Observation
    """Time, missing loads and existing replicas."""


def plan_fleet(settings: Settings, fleet: RunningFleet) -> tuple[bytes, dict[str, float]]:
    """Return a plan that a running fleet can reach, and the time of each stage [s]."""
    system, timings = system_of(fleet.spec, settings), Timings()
    deadline = Deadline.after(_limit_s(system, settings))
    planner = Planner(deadline, memo_of_process(settings.sizing_memo_rows), timings)
    plan = plan_next(system, fleet.rules, fleet.decisions, fleet.seen, planner)
    return plan.to_json().encode(), timings.stages_s


def _planned(system: System, settings: Settings) -> tuple[bytes, dict[str, float]]:
    timings = Timings()
    memo = memo_of_process(settings.sizing_memo_rows)
    plan = solve(system, timings=timings, time_limit_s=_limit_s(system, settings), memo=memo)
    return plan.to_json().encode(), timings.stages_s


def _limit_s(system: System, settings: Settings) -> float:
    return min(system.options.time_limit_s, settings.max_solve_s)


def candidates_body(body: bytes, options: SizingOptions, settings: Settings) -> bytes:
    """Return the candidates and rejections of the system in a body."""
    memo = memo_of_process(settings.sizing_memo_rows)
    system = options.applied(system_of(body, settings))
    wire = find_candidates(system, memo).to_wire()
    return to_json(wire, inf_nan_mode="null", indent=2)


def analyze_body(body: bytes, settings: Settings) -> bytes:
    """Return the performance of the replica or replicas in a body."""
    value = value_of(body)
    rows = _rows_of(value, settings)
    if rows is not None:
        return _answered(rows, lambda row: row.analyze())
    if not _has_items(value):
        return _json(_analyzed([_problem(Analysis, value, settings)])[0])
    items = _problems(Analyses, value, settings).items
    return _json(Performances(items=tuple(_all(items, _analyzed))))


def size_body(body: bytes, settings: Settings) -> bytes:
    """Return the sizing of the replica or replicas in a body.

    Raises:
        AnalysisError: the only replica misses its targets at every rate.
    """
    value = value_of(body)
    rows = _rows_of(value, settings)
    if rows is not None:
        return _answered(rows, lambda row: row.size())
    if not _has_items(value):
        sizing = _sized([_problem(SizingProblem, value, settings)])[0]
        if isinstance(sizing, AnalysisError):
            raise sizing
        return _json(sizing)
    items = _problems(SizingProblems, value, settings).items
    answers = (
        Unattainable(message=str(found)) if isinstance(found, AnalysisError) else found
        for found in _all(items, _sized)
    )
    return _json(Sizings(items=tuple(answers)))


def _rows_of(value: Mapping[str, Any], settings: Settings) -> Row | list[Row] | None:
    """Return the row or rows in a body; None if it has replicas in the format of /v1.

    Raises:
        SpecError: a row is invalid, or there are too many.
    """
    items = next((found for key, found in value.items() if key.lower() == "items"), None)
    if items is None:
        return _row_of(value, "", settings) if is_row(value) else None
    if not (isinstance(items, list) and items and is_row(items[0])):
        return None
    if len(items) > MAX_ITEMS:
        raise SpecError(f"items: must have at most {MAX_ITEMS:,} items, not {len(items):,}")
    return [_row_of(item, f"items[{i}].", settings) for i, item in enumerate(items)]


def _row_of(value: object, prefix: str, settings: Settings) -> Row:
    row = validated(kind_of_row(value), value, prefix)
    _check_limit(getattr(row, "max_batch", 0), f"{prefix}maxBatchSize", settings)
    return row


def _answered(rows: Row | list[Row], answer: Callable[[Row], Document]) -> bytes:
    """Return the answer to a row, or to several, in which rows without an answer have a message.

    Raises:
        AnalysisError: the only row has no answer.
    """
    if isinstance(rows, Row):
        return _json(answer(rows))
    found: list[Any] = []
    for row in rows:
        try:
            found.append(answer(row).model_dump(mode="json", by_alias=True))
        except (AnalysisError, SpecError) as error:
            found.append({"message": str(error)})
    return to_json({"items": found}, indent=2)


def _json(document: Document) -> bytes:
    return document.to_json().encode()


def _has_items(value: Mapping[str, Any]) -> bool:
    return any(key.lower() == "items" for key in value)


def _problem(model: type[_Item], value: Mapping[str, Any], settings: Settings) -> _Item:
    problem = validated(model, value)
    _check_batch(problem, "", settings)
    return problem


def _problems(model: type[_Items], value: Mapping[str, Any], settings: Settings) -> _Items:
    problems = validated(model, value)
    for i, problem in enumerate(problems.items):
        _check_batch(problem, f"items[{i}].", settings)
    return problems


def _check_batch(problem: Analysis | SizingProblem, prefix: str, settings: Settings) -> None:
    _check_limit(problem.replica.max_batch, f"{prefix}replica.maxBatch", settings)


def _check_limit(batch: int, path: str, settings: Settings) -> None:
    if batch > settings.max_batch:
        raise SpecError(f"{path}: must be at most {settings.max_batch:,} on this service, not {batch:,}")


def _analyzed(items: Sequence[Analysis]) -> list[ReplicaPerformance]:
    return analyze_replicas([item.replica for item in items], [item.rate_rps for item in items])


def _sized(items: Sequence[SizingProblem]) -> list[ReplicaSizing | AnalysisError]:
    return size_replicas([item.replica for item in items], [item.targets for item in items])


def _all(items: Sequence[_Item], answer: Callable[[Sequence[_Item]], list[_Answer]]) -> list[_Answer]:
    """Return the answers for many replicas.

    Raises:
        AnalysisError: a replica cannot be analysed; the message names it.
    """
    try:
        return answer(items)
    except AnalysisError:
        for i, item in enumerate(items):
            try:
                answer([item])
            except AnalysisError as error:
                raise AnalysisError(f"items[{i}].replica: {error}") from None
        raise
