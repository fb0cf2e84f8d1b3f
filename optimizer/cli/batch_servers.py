"""The flags of a batch server, and the row that they describe; for the sub-commands for one replica."""

import argparse
from collections.abc import Sequence
from typing import Any

from optimizer.cli.command import quantity
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchRow
from optimizer.kinds.rows import NoSteadyState
from optimizer.spec.messages import validated
from optimizer.units import MILLISECONDS, MILLISECONDS_PER_REQUEST

_OWN_FLAGS = (
    ("--service-base", "base", "MS", "time of any batch"),
    ("--service-slope", "slope", "MS/REQUEST", "more for each request in it"),
    ("--trigger", "trigger", "NAME", "what starts a batch: oldest, collect, gap, interval, clock (oldest)"),
    ("--window", "window", "MS", "how long a batch is collected (0)"),
    ("--queue-counts", "queueCounts", "NAME", "scope of --max-queue: waiting, system (waiting)"),
    ("--jobs", "jobs", "N", "maximum requests in the server and its stages; others wait (unlimited)"),
    (
        "--stage",
        "stages",
        "NAME,WHERE,MS[,CV[,WORKERS]]",
        "a stage before or after the batch, with its mean time (CV 1, 1 worker); may be given again",
    ),
)
"""Flags that only batch servers have, and the fields that they give."""
_SHARED_FLAGS = {"max_batch": "maxBatchSize", "max_queue": "maxQueueSize", "arrival_cv": "arrivalCV"}
"""Flags that batch servers share with others, and the fields that they give."""
_SCALES = {"MS": MILLISECONDS, "MS/REQUEST": MILLISECONDS_PER_REQUEST}
OWN_FLAGS = tuple(flag[2:].replace("-", "_") for flag, *_ in _OWN_FLAGS)
"""Flags that only batch servers have, as arguments are named."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only batch servers have."""
    group = parser.add_argument_group("batch server, which answers requests without tokens together")
    for flag, _, metavar, text in _OWN_FLAGS:
        kind: Any = quantity(_SCALES[metavar]) if metavar in _SCALES else {"N": int}.get(metavar, str)
        more: Any = {"action": "append"} if flag == "--stage" else {}
        group.add_argument(flag, metavar=metavar, type=kind, help=text, **more)


def row_of(
    arguments: argparse.Namespace, other_flags: Sequence[str], rate_rps: float, **targets: object
) -> BatchRow | None:
    """Return the batch server that the flags describe; None if they do not describe one.

    Args:
        arguments: what the command line gives.
        other_flags: flags of other servers, which a batch server has no use for unless it shares them.
        rate_rps: arrival rate [requests/s].
        targets: fields of targets.

    Raises:
        SpecError: a flag is wrong, or of no use for a batch server.
    """
    own = {name: getattr(arguments, flag) for flag, (_, name, *_) in zip(OWN_FLAGS, _OWN_FLAGS, strict=True)}
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    if not given:
        return None

    for flag in other_flags:
        value = getattr(arguments, flag)
        if value is not None and flag not in _SHARED_FLAGS:
            raise SpecError(f"{_flag(flag)}: a batch server has no use for it; remove it")
        if value is not None:
            given[_SHARED_FLAGS[flag]] = value
    if "stages" in given:
        given["stages"] = [_stage(text) for text in given["stages"]]
    parms = {name: given.pop(name) for name in ("base", "slope") if name in given}
    try:
        return validated(BatchRow, given | {"RPS": rate_rps, "batchParms": parms} | targets)
    except SpecError as error:
        path, _, problem = str(error).partition(": ")
        names = {name: flag for flag, name, *_ in _OWN_FLAGS}
        names |= {name: _flag(flag) for flag, name in _SHARED_FLAGS.items()}
        said = problem.replace("this key is required", "this flag is required")
        raise SpecError(f"{names.get(path.rpartition('.')[2], path)}: {said}") from None


def row_to_size(
    arguments: argparse.Namespace, other_flags: Sequence[str], percentile: float | None
) -> BatchRow | None:
    """Return the batch server that the flags describe, with the target of the time to the answer.

    Raises:
        SpecError: a flag is wrong, or of no use for a batch server.
    """
    at = {} if percentile is None else {"percentile": percentile}
    latency = [{"ms": arguments.target_e2e, **at}] if arguments.target_e2e else []
    row = row_of(arguments, other_flags, 0.0, latency=latency)
    for flag in ("target_ttft", "target_itl", "throughput_target"):
        if row is not None and getattr(arguments, flag):
            raise SpecError(f"{_flag(flag)}: a batch server answers without tokens; give --target-e2e")
    return row


def analyzed(row: BatchRow) -> BatchAnswer:
    """Return the performance of a batch server at its rate.

    Raises:
        AnalysisError: the rate is zero, or its queue grows without end.
    """
    found = row.analyze()
    if isinstance(found, NoSteadyState):
        raise AnalysisError(f"{found.message}; lower it, or limit the queue")
    return found


def _stage(text: str) -> dict[str, object]:
    """Read a stage as the flag gives it."""
    name, *rest = text.split(",")
    kinds = ("where", str), ("time", float), ("cv", float), ("workers", int)
    try:
        stage = {key: kind(part) for (key, kind), part in zip(kinds, rest, strict=False)}
    except ValueError:
        stage = {}
    if not 2 <= len(rest) <= len(kinds) or not stage:
        raise SpecError(f"--stage: must be NAME,WHERE,MS[,CV[,WORKERS]], not {text!r}")
    return {"name": name, **stage}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
