"""Work of the routes of /v1: converts the bytes of a request body to those of a response body.

Bodies are parsed like files, with the same messages. Functions take and return plain values, so they can run
in another process. They are independent of HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import to_json

from optimizer.candidates import find_candidates
from optimizer.checking.checks import candidates_wire, warnings_of, with_warnings
from optimizer.compat.row_types import is_row, kind_of_row
from optimizer.documents import WRITTEN_BY_HAND, Document
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
    LoadsAnswer,
    MissingLoadNote,
    PlanOptions,
    SizingOptions,
    SizingProblem,
    SizingProblems,
)

BODY = "body"
"""Name of the entire request body in messages."""
_Item = TypeVar("_Item", Analysis, SizingProblem)
_Answer = TypeVar("_Answer")


def value_of(body: bytes) -> dict[str, Any]:
    """Parse a request body as a JSON object.

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
    """Return the cross-checked system in a request body, with or without llm-inferno's wrappers.

    Args:
        source: body of the request, or the document of a fleet, whose parts are already valid; in a fleet,
            token lengths that are not stated are 0.
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
    spec = spec_from_value(value, context=WRITTEN_BY_HAND)
    check_size(spec, settings)
    return join_parts([Part(spec)])


def plan_body(body: bytes, options: PlanOptions, settings: Settings) -> tuple[bytes, dict[str, float]]:
    """Return the plan of the system in a body, and the time of each stage [s]."""
    system, timings = options.applied(system_of(body, settings)), Timings()
    memo = memo_of_process(settings.sizing_memo_rows)
    plan = solve(system, timings=timings, time_limit_s=_limit_s(system, settings), memo=memo)
    return plan.to_json().encode(), timings.stages_s


def memory_text(question: MemoryQuestion, _settings: Settings) -> bytes:
    """Return the numbers of requests that fit in memory, as JSON."""
    return memory_of(question).model_dump_json(by_alias=True).encode()


@dataclass(frozen=True, slots=True)
class RunningFleet:
    """A consistent fleet with the state of its replicas, as input for planning."""

    spec: SystemSpec
    """Document of the fleet, with the loads for which it is planned."""
    rules: Rules
    """Stabilisation rules."""
    decisions: Decisions | None
    """Previous desired replicas; None if there are none."""
    seen: Observation
    """Time, missing loads and existing replicas."""
    missing: tuple[MissingLoadNote, ...] = ()
    """Loads of which a part is missing."""


def plan_fleet(settings: Settings, fleet: RunningFleet) -> tuple[bytes, dict[str, float]]:
    """Return a plan that a running fleet can reach with its missing loads, and the time of each stage [s]."""
    system, timings = system_of(fleet.spec, settings), Timings()
    deadline = Deadline.after(_limit_s(system, settings))
    planner = Planner(deadline, memo_of_process(settings.sizing_memo_rows), timings)
    plan = plan_next(system, fleet.rules, fleet.decisions, fleet.seen, planner)
    plan = with_warnings(plan, find_candidates(system, planner.memo), planner.memo)
    return LoadsAnswer.of(plan, fleet.missing).to_json().encode(), timings.stages_s


def _limit_s(system: System, settings: Settings) -> float:
    return min(system.options.time_limit_s, settings.max_solve_s)


def candidates_body(body: bytes, options: SizingOptions, settings: Settings) -> bytes:
    """Return the candidates and the rejected pairs of the system in a body."""
    memo = memo_of_process(settings.sizing_memo_rows)
    system = options.applied(system_of(body, settings))
    candidates = find_candidates(system.with_all_pools(), memo)
    wire = candidates_wire(candidates, warnings_of(candidates, memo=memo))
    return to_json(wire, inf_nan_mode="null", indent=2)


def analyze_body(body: bytes, settings: Settings) -> bytes:
    """Return the performance of the replica or replicas in a body."""
    asked, is_one = _asked(body, settings, Analysis, Analyses)
    return _answered(asked, lambda row: row.analyze(), _analyzed, is_one=is_one)


def size_body(body: bytes, settings: Settings) -> bytes:
    """Return the sizing of the replica or replicas in a body.

    Raises:
        AnalysisError: the body has one replica, which misses its targets at every rate.
    """
    asked, is_one = _asked(body, settings, SizingProblem, SizingProblems)
    return _answered(asked, lambda row: row.size(), _sized, is_one=is_one)


def _asked(
    body: bytes,
    settings: Settings,
    one: type[Analysis | SizingProblem],
    several: type[Analyses | SizingProblems],
) -> tuple[Sequence[Any], bool]:
    """Return the rows or replicas in a body, and whether it is a single one without `items`.

    Args:
        body: body of the request.
        settings: settings with the size limits.
        one: document type of a single replica.
        several: document type with several replicas.

    Raises:
        SpecError: a row or replica is invalid or too large, or there are too many.
    """
    value = value_of(body)
    items = next((found for key, found in value.items() if key.lower() == "items"), None)
    asked: Sequence[Row | Analysis | SizingProblem]
    if items is None:
        asked = [validated(kind_of_row(value) if is_row(value) else one, value)]
    elif isinstance(items, list) and items and is_row(items[0]):
        if len(items) > MAX_ITEMS:
            raise SpecError(f"items: must have at most {MAX_ITEMS:,} items, not {len(items):,}")
        asked = [validated(kind_of_row(item), item, f"items[{i}].") for i, item in enumerate(items)]
    else:
        asked = validated(several, value).items
    for i, item in enumerate(asked):
        of, key = (item, "maxBatchSize") if isinstance(item, Row) else (item.replica, "replica.maxBatch")
        if (batch := getattr(of, "max_batch", 0)) > settings.max_batch:
            place = key if items is None else f"items[{i}].{key}"
            raise SpecError(f"{place}: must be at most {settings.max_batch:,} on this service, not {batch:,}")
    return asked, items is None


def _answered(
    asked: Sequence[Any],
    of_row: Callable[[Row], Document],
    of_replicas: Callable[[Sequence[Any]], Sequence[Document | AnalysisError]],
    *,
    is_one: bool,
) -> bytes:
    """Return the result for one row or replica, or the results for several, some of which can be messages.

    Raises:
        AnalysisError: the only one has no result, or one of several replicas cannot be analysed.
    """
    answered: Sequence[Document | AnalysisError | SpecError]
    if asked and isinstance(asked[0], Row):
        answered = [_caught(of_row, row) for row in asked]
    else:
        answered = of_replicas(asked) if is_one else _all(asked, of_replicas)
    if not is_one:
        return to_json({"items": [_item(each) for each in answered]}, indent=2)
    if isinstance(answered[0], Document):
        return answered[0].to_json().encode()
    raise answered[0]


def _caught(answer: Callable[[Row], Document], row: Row) -> Document | AnalysisError | SpecError:
    try:
        return answer(row)
    except (AnalysisError, SpecError) as error:
        return error


def _item(answer: Document | AnalysisError | SpecError) -> dict[str, Any]:
    if isinstance(answer, Document):
        return answer.model_dump(mode="json", by_alias=True)
    return {"message": str(answer)}


def _analyzed(items: Sequence[Analysis]) -> list[ReplicaPerformance]:
    return analyze_replicas([item.replica for item in items], [item.rate_rps for item in items])


def _sized(items: Sequence[SizingProblem]) -> list[ReplicaSizing | AnalysisError]:
    return size_replicas([item.replica for item in items], [item.targets for item in items])


def _all(items: Sequence[_Item], answer: Callable[[Sequence[_Item]], _Answer]) -> _Answer:
    """Return the results for many replicas.

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
