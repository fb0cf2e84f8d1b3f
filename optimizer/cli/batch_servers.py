"""Flags of a batch server, and the row that they describe; for `analyze` and `size`."""

import argparse
from collections.abc import Sequence
from typing import Annotated

from optimizer.cli.flags import add_request, given_values
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchRow
from optimizer.kinds.rows import UnstableReplica
from optimizer.schema.messages import validated
from optimizer.units import MILLISECONDS, MILLISECONDS_PER_REQUEST


class BatchServerFlags(Request):
    """Flags that only batch servers have."""

    service_base: Annotated[float | None, Flag("MS", MILLISECONDS)] = None
    """Time of any batch."""
    service_slope: Annotated[float | None, Flag("MS/REQUEST", MILLISECONDS_PER_REQUEST)] = None
    """Additional time for each request in it."""
    trigger: Annotated[str | None, Flag("NAME")] = None
    """Start of a batch: oldest, collect, gap, interval, clock (oldest)."""
    window: Annotated[float | None, Flag("MS", MILLISECONDS)] = None
    """Batching window (0)."""
    queue_counts: Annotated[str | None, Flag("NAME")] = None
    """Scope of --max-queue: waiting, system (waiting)."""
    jobs: Annotated[int | None, Flag("N")] = None
    """Maximum requests in the server and its stages; others wait (unlimited)."""
    stage: Annotated[tuple[str, ...], Flag("NAME,WHERE,MS[,CV[,WORKERS]]")] = ()
    """A stage before or after the batch, with its mean time (CV 1, 1 worker); may be given again."""


OWN_FLAGS = tuple(BatchServerFlags.model_fields)
"""Flags that only batch servers have, named as in parsed arguments."""
_FIELDS = {
    "service_base": "base",
    "service_slope": "slope",
    "trigger": "trigger",
    "window": "window",
    "queue_counts": "queueCounts",
    "jobs": "jobs",
    "stage": "stages",
}
"""Document fields that these flags set."""
_SHARED_FLAGS = {"max_batch": "maxBatchSize", "max_queue": "maxQueueSize", "arrival_cv": "arrivalCV"}
"""Flags that batch servers share with other servers, and the fields that they set."""


def add_batch_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only batch servers have."""
    group = parser.add_argument_group("batch server, which answers requests without tokens together")
    add_request(group, BatchServerFlags)


def batch_server_row(
    arguments: argparse.Namespace, other_flags: Sequence[str], rate_rps: float, **targets: object
) -> BatchRow | None:
    """Return the batch server that the flags describe; None if they do not describe one.

    Args:
        arguments: parsed command line.
        other_flags: flags of other servers; those not shared with batch servers are rejected.
        rate_rps: arrival rate [requests/s].
        targets: fields of targets.

    Raises:
        SpecError: a flag is invalid, or does not apply to batch servers.
    """
    given = {_FIELDS[flag]: value for flag, value in given_values(arguments, OWN_FLAGS).items()}
    if not given:
        return None

    for flag in other_flags:
        value = getattr(arguments, flag)
        if value is not None and flag not in _SHARED_FLAGS:
            raise SpecError(f"{_flag(flag)}: not used by a batch server; remove it")
        if value is not None:
            given[_SHARED_FLAGS[flag]] = value
    if "stages" in given:
        given["stages"] = [_stage(text) for text in given["stages"]]
    parms = {name: given.pop(name) for name in ("base", "slope") if name in given}
    try:
        return validated(BatchRow, given | {"RPS": rate_rps, "batchParms": parms} | targets)
    except SpecError as error:
        path, _, problem = str(error).partition(": ")
        names = {name: _flag(flag) for flag, name in (_FIELDS | _SHARED_FLAGS).items()}
        said = problem.replace("this key is required", "this flag is required")
        raise SpecError(f"{names.get(path.rpartition('.')[2], path)}: {said}") from None


def row_to_size(
    arguments: argparse.Namespace, other_flags: Sequence[str], percentile: float | None
) -> BatchRow | None:
    """Return the batch server that the flags describe, with its latency target.

    Raises:
        SpecError: a flag is invalid, or does not apply to batch servers.
    """
    at = {} if percentile is None else {"percentile": percentile}
    latency = [{"ms": arguments.target_e2e, **at}] if arguments.target_e2e else []
    row = batch_server_row(arguments, other_flags, 0.0, latency=latency)
    for flag in ("target_ttft", "target_itl", "throughput_target"):
        if row is not None and getattr(arguments, flag):
            raise SpecError(f"{_flag(flag)}: a batch server has no tokens; give --target-e2e")
    return row


def analyzed(row: BatchRow) -> BatchAnswer:
    """Return the performance of a batch server at its rate.

    Raises:
        AnalysisError: the rate is zero, or its queue grows without bound.
    """
    found = row.analyze()
    if isinstance(found, UnstableReplica):
        raise AnalysisError(f"{found.message}; lower it, or limit the queue")
    return found


def _stage(text: str) -> dict[str, object]:
    """Parse a stage from the value of its flag."""
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
