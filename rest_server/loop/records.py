"""Records of the control loop: its state and its cycles as plain values, and the repetition of cycles."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from optimizer.candidates import SizingMemo
from optimizer.errors import SpecError
from optimizer.schema.files import json_value, read_text
from optimizer.spec.system import System
from rest_server.loop.config import LoopConfig
from rest_server.loop.deciding import (
    CycleInputs,
    CycleOutcome,
    LoopState,
    WorkloadDecision,
    decide,
    decide_remotely,
)
from rest_server.loop.loads import EstimatedLoad

VERSION = 3
"""Version of the state."""
MEMO_ROWS = 2**15
"""Maximum number of cached sizings."""
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Cached converter of a type from and to plain values; creating one takes milliseconds."""


def state_values(state: LoopState) -> dict[str, Any]:
    """Return the state of the loop as plain values."""
    return {"version": VERSION, **_plain(state)}


def state_of(values: Mapping[str, Any], source: str) -> LoopState:
    """Return the state of the loop from plain values.

    Args:
        values: the plain values.
        source: name of the file, for messages.

    Raises:
        SpecError: the state is of another version, or invalid.
    """
    given = dict(values)
    version = given.pop("version", None)
    if version != VERSION:
        raise SpecError(
            f"{source}: version {version!r}; this program reads {VERSION}; remove the file to start anew"
        )
    loop_state: LoopState = _read(LoopState, given, source, "; remove the file to start anew")
    return loop_state


def _read(kind: Any, values: object, source: str, advice: str = "") -> Any:
    """Return a value of a type from plain values; an error is one line about the first problem.

    Raises:
        SpecError: the values are invalid.
    """
    try:
        return _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise SpecError(f"{source}: {place + ': ' if place else ''}{first['msg']}{advice}") from None


def record_of(
    seen: CycleInputs, before: LoopState | None, outcome: CycleOutcome, results: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """Return the record of a cycle as plain values, with everything that is needed to repeat the cycle.

    Args:
        before: state before the cycle; None if it follows from earlier records.
        outcome: result of the cycle.
        results: result of scaling, by server and accelerator.
    """
    plan = outcome.plan
    return {
        "time": datetime.fromtimestamp(seen.now_s, UTC).isoformat(timespec="milliseconds"),
        "loads": {
            name: _load_values(load, outcome.state.loads[name].measured_s, seen.now_s)
            for name, load in outcome.loads.items()
        },
        "holds": {
            name: f"{hold.reason.value}: {hold.detail}" for name, hold in sorted(outcome.holds.items())
        },
        "workloads": [
            _plain(item) | {"result": results.get((item.server, item.accelerator), "")}
            for item in outcome.workloads
        ],
        "plan": None
        if plan is None
        else {
            "status": plan.status,
            "cost": plan.total_cost_cents_per_h,
            "unserved": {item.server: item.reason for item in plan.unserved},
        },
        "planned": {name: asdict(entry) for name, entry in sorted(outcome.planned.items())},
        "drift": {
            key: {
                "ratio": None if entry.ratio is None else round(entry.ratio, 4),
                "ttft_ratio": None if entry.ttft_ratio is None else round(entry.ttft_ratio, 4),
                "alarm": entry.alarm,
                "proposed": entry.proposal,
                "applied": entry.factors,
            }
            for key, entry in outcome.state.drifts.items()
        },
        "inputs": _plain(seen),
        **({} if before is None else {"state": state_values(before)}),
    }


def _load_values(load: EstimatedLoad, measured_s: float | None, now_s: float) -> dict[str, Any]:
    age_s = None if measured_s is None else now_s - measured_s
    values = _plain(load) | {"planned_rps": load.planned_rps, "age_s": age_s}
    shares = {"shares": [round(share, 4) for share in values.pop("shares") or ()]}
    demand = values.pop("demand")
    values |= {} if demand is None else demand["now"]
    known = {
        key: value if isinstance(value, bool) else round(value, 4)
        for key, value in values.items()
        if value is not None
    }
    return known | {key: value for key, value in shares.items() if value}


def _plain(value: Any) -> dict[str, Any]:
    prices: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return prices


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of cycles in a file with one record per line.

    Raises:
        SpecError: the file cannot be read, or a line is not a record.
    """
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            yield json_object(line, f"{path}:{number}")


def json_object(text: str, source: str) -> dict[str, Any]:
    """Return a JSON object from text.

    Args:
        source: name of the file, for messages.

    Raises:
        SpecError: the text is not a JSON object.
    """
    result = json_value(text, source)
    if not isinstance(result, dict):
        raise SpecError(f"{source}: must be a JSON object")
    try:
        json.dumps(result, allow_nan=False)
    except ValueError:
        raise SpecError(f"{source}: a number is not finite") from None
    return result


def repeated(system: System, config: LoopConfig, path: Path) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the record of each cycle, and the differences in the decisions when the cycle is repeated.

    Args:
        system: the documented system.
        config: the configuration; another one shows what it would have decided.
        path: file with the records.

    Raises:
        SpecError: a record is invalid, or the first one has no state.
    """
    state: LoopState | None = None
    memo = SizingMemo(MEMO_ROWS)
    for number, record in enumerate(read_records(path), 1):
        source = f"{path}: record {number}"
        if "state" in record:
            state = state_of(_read(dict[str, Any], record["state"], f"{source}: state"), source)
        if state is None:
            raise SpecError(f"{source}: it has no state; give the file from the start of the loop")
        seen = _read(CycleInputs, record.get("inputs"), f"{source}: inputs")
        decided = _read(tuple[WorkloadDecision, ...], record.get("workloads"), f"{source}: workloads")
        if seen.remote is None:
            outcome = decide(system, config, state, seen, memo)
        else:
            answer = seen.remote
            outcome, _ = decide_remotely(system, config, state, seen, lambda *_, answer=answer: answer)
        state = outcome.state
        yield record, _differences(decided, outcome)


def _differences(recorded: Iterable[WorkloadDecision], outcome: CycleOutcome) -> list[str]:
    """Describe the differences between the recorded and the repeated decisions about workloads."""
    then = {(item.server, item.accelerator): item for item in recorded}
    differences = []
    for item in outcome.workloads:
        place = item.server, item.accelerator
        old = then.pop(place, None)
        if old != item:
            before = "none" if old is None else f"{old.replicas} ({old.reason})"
            differences.append(
                f"{'/'.join(place)}: recorded {before}, repeated {item.replicas} ({item.reason})"
            )
    return differences + [f"{'/'.join(place)}: recorded, not repeated" for place in sorted(then)]
