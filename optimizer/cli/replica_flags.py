"""Flags that describe one token replica or one batch server, and the documents built from them."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from optimizer.cli.command import add_output
from optimizer.cli.flags import add_request, given_values, help_of, number_of_shapes, plain, reader
from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.memory import DEPLOYMENT, MemoryQuestion
from optimizer.jobs.requests import ModelOptions, Request
from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.kinds.replicas import LatencyTargets, Replica
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.replicas import EstimatedReplica, estimate_replica
from optimizer.schema.messages import validated
from optimizer.spec.trace_shapes import load_of_trace
from optimizer.timing import BatchParms, DecodeParms, PerfParms, PrefillParms
from optimizer.units import MILLISECONDS, MILLISECONDS_PER_REQUEST, MILLISECONDS_PER_TOKEN, TOKENS

_Described = TypeVar("_Described", bound=Document)
_UNIT = re.compile(r"\[(\w+)(?: per (?:input )?(\w+))?")
"""Pattern of the unit in the description of a field, such as [ms per token of KV cache read]."""
_SCALES = {
    scale.unit: scale for scale in (MILLISECONDS, MILLISECONDS_PER_TOKEN, MILLISECONDS_PER_REQUEST, TOKENS)
}
_STAGE = "NAME,WHERE,MS[,CV[,WORKERS]]"


class NameFlags(Request):
    """Flags for a replica whose times are estimated from the names of its model and accelerator."""

    model: Annotated[str | None, Flag("NAME")] = None
    """Model in the catalogue, or the path of a config.json."""
    accelerator: Annotated[str | None, Flag("NAME")] = None
    """Accelerator in the catalogue, with a number for several: H100, 4xH100."""


class TraceFlags(Request):
    """Flags for a replica whose request lengths are those of recorded requests."""

    from_trace: Annotated[str | None, Flag("FILE")] = None
    """Recorded requests (Azure, BurstGPT or Mooncake) whose request shapes replace the lengths."""
    shapes: Annotated[int | None, Flag("N")] = None
    """Number of request shapes of the trace, 1 to 8 (4)."""


class _Field(NamedTuple):
    """A field of a document with a flag."""

    path: str
    """Path of the field's key in the document, with dots."""
    name: str
    """Python name of the field."""
    document: type[Document]
    """The document, or the part of it, that has the field."""


_FLAGS = {
    "kv_capacity_tokens": "kv_capacity",
    "stages": "stage",
    "ttft_ms": "target_ttft",
    "itl_ms": "target_itl",
    "e2e_ms": "target_e2e",
    "tps": "throughput_target",
}
"""Names of flags that do not follow from the names of their fields, by field."""


def _fields(document: type[Document], *names: str) -> dict[str, _Field]:
    """Return the named fields of a document, by the names of their flags."""
    known = document.model_fields
    return {
        _FLAGS.get(name, name.removesuffix("_ms")): _Field(known[name].alias or name, name, document)
        for name in names
    }


def _terms(part: str, key: str, parameters: type[Document]) -> dict[str, _Field]:
    """Return the parameters of a part of a latency model, by the names of their flags.

    Args:
        part: name of the part, the prefix of its flags; most flags of iterations have none.
        key: key of the part in the document of a replica.
        parameters: document type of the part.
    """
    return {
        flag if part == "iteration" and flag != "base" else f"{part}_{flag}": field._replace(
            path=f"{key}.{field.path}"
        )
        for flag, field in _fields(parameters, *parameters.model_fields).items()
    }


_LINEAR = _terms("decode", "decodeParms", DecodeParms) | _terms("prefill", "prefillParms", PrefillParms)
_ITERATION = _terms("iteration", "perfParms", PerfParms)
_SIZES = _fields(Replica, "in_tokens", "out_tokens", "max_batch", "max_queue")
_BATCHING = _fields(Replica, "batching")
_SCHEDULING = _fields(Replica, "max_num_tokens", "scheduler")
_QUEUE = _fields(Replica, "queue_model", "kv_capacity_tokens", "arrival_cv", "in_tokens_cv", "out_tokens_cv")
_SHAPE = _SIZES | _BATCHING | _SCHEDULING | _QUEUE
_REPLICA = _SHAPE | _LINEAR | _ITERATION
_OWN_BATCH_SERVER = _terms("service", "batchParms", BatchParms) | _fields(
    BatchRow, "trigger", "window_ms", "queue_counts", "jobs", "stages"
)
_BATCH_SERVER = _OWN_BATCH_SERVER | _fields(BatchRow, "max_batch", "max_queue", "arrival_cv")
TARGET_FLAGS = _fields(LatencyTargets, "ttft_ms", "itl_ms", "e2e_ms", "percentile", "tps")
_NAMES = (*NameFlags.model_fields, *DEPLOYMENT, "estimates")
_TOKEN_FLAGS = (*_SHAPE, *_NAMES, *_REPLICA, *TraceFlags.model_fields)


def add_flags(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags that describe a replica, name a file of replicas, and select the output format."""
    _add(parser, _SIZES)
    add_request(parser, TraceFlags)
    names = parser.add_argument_group("names, from which token times, memory and batch are estimated")
    add_request(names, NameFlags)
    add_request(names, MemoryQuestion, fields=DEPLOYMENT)
    add_request(names, ModelOptions, fields=("estimates",))
    _add(parser.add_argument_group("linear law"), _LINEAR | _BATCHING)
    _add(parser.add_argument_group("iteration law"), _ITERATION | _SCHEDULING)
    batches = parser.add_argument_group("batch server, which answers requests without tokens together")
    _add(batches, _OWN_BATCH_SERVER)
    _add(parser.add_argument_group("queue model"), _QUEUE)
    parser.add_argument(
        "--batch",
        metavar="FILE",
        help="JSON lines in the format of the reference's queue-analysis service; - for stdin",
    )
    add_output(parser, *tables)


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Add the flags for latency and throughput targets."""
    _add(parser, TARGET_FLAGS)


def _add(parser: argparse._ActionsContainer, fields: Mapping[str, _Field]) -> None:
    """Add flags for fields of a document; values are checked when the document is built."""
    for flag, field in fields.items():
        info = field.document.model_fields[field.name]
        type_, text = plain(info.annotation), help_of(field.document, field.name)
        unit = _UNIT.search(text)
        name = "/".join(filter(None, unit.groups())) if unit else flag.rpartition("_")[2]
        if type_ is bool:
            parser.add_argument(_written(flag), action="store_const", const=True, help=text)
        elif get_origin(type_) is tuple:
            text = f"{text}, with its mean time (CV 1, 1 worker); may be given again"
            parser.add_argument(_written(flag), metavar=_STAGE, action="append", help=text)
        elif type_ is float or type_ is int:
            read = reader(type_, _SCALES.get(name) if type_ is float else None)
            parser.add_argument(_written(flag), metavar=name.upper(), type=read, help=text)
        else:
            choices = ", ".join(get_args(type_))
            text += f" ({choices})" if choices else ""
            parser.add_argument(_written(flag), metavar="NAME", help=text)


def refuse_beside_batch(arguments: argparse.Namespace, own: Iterable[str]) -> None:
    """Reject flags that describe a replica if ``--batch`` is given, because the lines of its file do that."""
    _refuse(arguments, own, "--batch: reads all values from its lines")


def refuse_beside_document(arguments: argparse.Namespace, own: Iterable[str]) -> None:
    """Reject flags that describe a replica if a system is given, because its document does that."""
    _refuse(arguments, own, "PATH: the document has all values but --rate")


def _refuse(arguments: argparse.Namespace, own: Iterable[str], why: str) -> None:
    given = given_values(arguments, (*_TOKEN_FLAGS, *_OWN_BATCH_SERVER, *own))
    if given:
        raise SpecError(f"{why}; remove {_written(next(iter(given)))}")


def replica_of(arguments: argparse.Namespace) -> tuple[Replica, EstimatedReplica | None]:
    """Return the replica that the flags describe, and its estimate if they name a model and an accelerator.

    Raises:
        SpecError: a flag is missing or wrong, or flags contradict each other.
    """
    named = _estimated_of(arguments)
    if named is not None:
        return named.replica, named
    given = given_values(arguments, _REPLICA)
    if given.get("batching", "continuous") != "continuous" and "out_tokens_cv" not in given:
        raise SpecError(f"--out-tokens-cv: {LENGTHS_NEEDED}")
    if given.keys().isdisjoint(_LINEAR) == given.keys().isdisjoint(_ITERATION):
        linear, iteration = (", ".join(map(_written, terms)) for terms in (_LINEAR, _ITERATION))
        raise SpecError(
            "give --model and --accelerator, whose token times are estimated, or one latency model: "
            f"{linear} (linear law), or {iteration} (iteration law)"
        )
    return _described(Replica, _REPLICA, given, **_traced_shapes(arguments)), None


def _traced_shapes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the request shapes of the trace that the flags name, as a field of a replica; empty without one.

    Raises:
        SpecError: the trace cannot be read, or only a number of shapes is given.
    """
    count = number_of_shapes(arguments)
    trace = arguments.from_trace
    return {} if trace is None else {"shapes": load_of_trace(trace, count).shapes}


def _estimated_of(arguments: argparse.Namespace) -> EstimatedReplica | None:
    """Return the replica estimated from the flags' model and accelerator; None if they name neither.

    Raises:
        SpecError: one of the two is missing, a value is wrong, or token times are given as well.
    """
    given = given_values(arguments, _NAMES)
    if not given:
        return None
    for name in NameFlags.model_fields:
        if name not in given:
            raise SpecError(f"--{name}: missing; an estimate takes --model and --accelerator")
    for flag in given_values(arguments, (*_LINEAR, *_ITERATION)):
        raise SpecError(
            f"{_written(flag)}: token times are estimated from --model; give names or token times, not both"
        )

    deployment = Deployment(**given_values(arguments, DEPLOYMENT) | {"tp": 1})
    shape = {_SHAPE[flag].name: value for flag, value in given_values(arguments, _SHAPE).items()}
    shape |= _traced_shapes(arguments)
    with _said_by_flags(_REPLICA):
        return estimate_replica(
            arguments.model,
            arguments.accelerator,
            deployment,
            shape,
            tp=arguments.tp,
            end=arguments.estimates or "upper",
        )


def batch_server_of(arguments: argparse.Namespace, **own: object) -> BatchRow | None:
    """Return the batch server that the flags describe; None if they do not describe one.

    Args:
        arguments: parsed command line.
        own: further fields of the row, such as the rate.

    Raises:
        SpecError: a flag is invalid, or does not apply to batch servers.
    """
    if not given_values(arguments, _OWN_BATCH_SERVER):
        return None

    for flag in given_values(arguments, _TOKEN_FLAGS):
        if flag not in _BATCH_SERVER:
            raise SpecError(f"{_written(flag)}: not used by a batch server; remove it")
    given = given_values(arguments, _BATCH_SERVER)
    if "stage" in given:
        given["stage"] = [_stage(text) for text in given["stage"]]
    return _described(BatchRow, _BATCH_SERVER, given, batchParms={}, **own)


def batch_server_to_size(arguments: argparse.Namespace) -> BatchRow | None:
    """Return the batch server that the flags describe, with its latency target; None if there is none.

    Raises:
        SpecError: a flag is invalid, or does not apply to batch servers.
    """
    at = given_values(arguments, ["percentile"])
    latency = [{"ms": arguments.target_e2e, **at}] if arguments.target_e2e else []
    row = batch_server_of(arguments, latency=latency)
    for flag in ("target_ttft", "target_itl", "throughput_target"):
        if row is not None and getattr(arguments, flag):
            raise SpecError(f"{_written(flag)}: a batch server has no tokens; give --target-e2e")
    return row


def targets_of(arguments: argparse.Namespace) -> LatencyTargets:
    """Return the latency and throughput targets that the flags set.

    Raises:
        SpecError: a value is wrong.
    """
    return _described(LatencyTargets, TARGET_FLAGS, given_values(arguments, TARGET_FLAGS))


def _described(
    document: type[_Described], fields: Mapping[str, _Field], given: Mapping[str, Any], **own: Any
) -> _Described:
    """Build a document from the values of flags; errors name the flags.

    Args:
        fields: fields of the document, by flag.
        given: values by flag.
        own: values of further fields, by key.
    """
    values: dict[str, Any] = own
    for flag, value in given.items():
        *outer, key = fields[flag].path.split(".")
        inner = values
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[key] = value
    with _said_by_flags(fields):
        return validated(document, values)


@contextmanager
def _said_by_flags(fields: Mapping[str, _Field]) -> Iterator[None]:
    """Context manager that replaces paths of fields by the names of flags in errors raised in its body."""
    flags = {field.path: _written(flag) for flag, field in fields.items()}
    flags |= {_written(flag)[2:]: _written(flag) for flag in _TOKEN_FLAGS}
    try:
        yield
    except SpecError as error:
        path, separator, problem = str(error).partition(": ")
        said = problem.replace("this key is required", "this flag is required")
        raise SpecError(f"{flags.get(path, path)}{separator}{said}") from None


def _stage(text: str) -> dict[str, object]:
    """Parse a stage of a batch server from the value of ``--stage``."""
    name, *rest = text.split(",")
    parts = ("where", str), ("time", float), ("cv", float), ("workers", int)
    try:
        stage = {key: read(part) for (key, read), part in zip(parts, rest, strict=False)}
    except ValueError:
        stage = {}
    if not 2 <= len(rest) <= len(parts) or not stage:
        raise SpecError(f"--stage: must be {_STAGE}, not {text!r}")
    return {"name": name, **stage}


def _written(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"
