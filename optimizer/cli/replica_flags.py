"""Flags that describe one replica of a server with token generation."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from optimizer.cli import batch_servers
from optimizer.cli.command import add_output, number_parser
from optimizer.cli.flags import add_deployment, add_request, given_values
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.memory import DEPLOYMENT
from optimizer.jobs.requests import Request, SizingOptions
from optimizer.kinds.replicas import Replica
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.profiles import Deployment
from optimizer.profiles.replicas import EstimatedReplica, estimate_replica
from optimizer.schema.messages import validated
from optimizer.units import (
    MILLISECONDS,
    MILLISECONDS_PER_REQUEST,
    MILLISECONDS_PER_TOKEN,
    TOKENS,
)

_LAW_FLAGS = {
    "decode": (
        ("--decode-base", "base_ms", "ms", "α: decode step of an empty batch"),
        (
            "--decode-per-request",
            "per_request_ms",
            "ms/request",
            "β: longer decode step per request in the batch",
        ),
    ),
    "prefill": (
        ("--prefill-base", "base_ms", "ms", "γ: prefill of an empty prompt"),
        (
            "--prefill-per-token",
            "per_token_ms",
            "ms/token",
            "δ: longer prefill per input token and request in the batch",
        ),
    ),
    "iteration": (
        ("--iteration-base", "base_ms", "ms", "α: iteration of an empty batch"),
        ("--compute-per-token", "compute_per_token_ms", "ms/token", "β: per token computed"),
        ("--kv-read-per-token", "kv_read_per_token_ms", "ms/token", "γ: per token of KV cache read"),
        ("--per-sequence", "per_sequence_ms", "ms/request", "per request in the iteration"),
        ("--prompt-attention", "prompt_attention_ms", "ms/pair", "per pair of a prompt's tokens"),
        ("--prompt-base", "prompt_base_ms", "ms", "more with a prompt in the iteration"),
        ("--weight-read", "weight_read_ms", "ms", "reading the weights, behind which compute hides"),
        ("--batch-base", "batch_base_ms", "ms", "more with several requests in the iteration"),
        ("--per-prompt", "per_prompt_ms", "ms/prompt", "per prompt in the iteration"),
        ("--expert-read", "expert_read_ms", "ms", "reading all experts of a mixture"),
        ("--expert-share", "expert_share", "share", "experts of a mixture that a token chooses"),
        ("--client-offset", "client_offset_ms", "ms", "a client's own time before the first token"),
        ("--pipeline-depth", "pipeline_depth", "iterations", "first token later while others progress"),
        ("--front-end-lag", "front_end_lag", "iterations/request", "first token later for each of these"),
        ("--pause-offset", "pause_offset_ms", "ms", "first token later seconds after the last prompt"),
    ),
}

_SCALES = {scale.unit: scale for scale in (MILLISECONDS, MILLISECONDS_PER_TOKEN, MILLISECONDS_PER_REQUEST)}
_Number = Annotated[float | None, Flag("CV")]
_Name = Annotated[str | None, Flag("NAME")]
_Requests = Annotated[int | None, Flag("REQUESTS")]
_Tokens = Annotated[int | None, Flag("TOKENS")]
_Length = Annotated[float | None, Flag("TOKENS", TOKENS)]


class ReplicaFlags(Request):
    """A replica, except for its latency model; its fields are validated with those of the document."""

    in_tokens: _Length = None
    """Mean input length."""
    out_tokens: _Length = None
    """Mean output length."""
    max_batch: _Requests = None
    """Batch limit."""
    max_queue: _Requests = None
    """Queue capacity: maximum requests queued behind a full batch (10 times the batch)."""
    batching: _Name = None
    """How requests share a batch: continuous, static or padded."""
    max_num_tokens: _Tokens = None
    """Token budget of one iteration (8192)."""
    scheduler: _Name = None
    """How prompts are computed: chunked or prefill-first."""
    queue_model: _Name = None
    """Reference (means) or continuous (percentiles); by default that of the law."""
    kv_capacity: _Tokens = None
    """Tokens that fit in the KV cache; the continuous model limits the batch by it."""
    arrival_cv: _Number = None
    """Coefficient of variation of the times between arrivals (1)."""
    in_tokens_cv: _Number = None
    """Coefficient of variation of the input length (1)."""
    out_tokens_cv: _Number = None
    """Coefficient of variation of the output length (1)."""


class NameFlags(Request):
    """Names from which a replica is estimated."""

    model: _Name = None
    """A model of the catalogue, or the path of a config.json."""
    accelerator: _Name = None
    """Accelerators of the catalogue: H100, 4xH100."""


_SHAPE_FLAGS = tuple(ReplicaFlags.model_fields)
_OF_LAWS = {"linear law": ("batching",), "iteration law": ("max_num_tokens", "scheduler")}
_QUEUE = ("queue_model", "kv_capacity", "arrival_cv", "in_tokens_cv", "out_tokens_cv")
_NAMES = ("model", "accelerator", *DEPLOYMENT, "eager", "estimates")
TOKEN_FLAGS = (
    *_SHAPE_FLAGS,
    *_NAMES,
    *(flag[2:].replace("-", "_") for part in _LAW_FLAGS.values() for flag, *_ in part),
)
"""Flags of servers that generate tokens, named as in parsed arguments; batch servers share some."""


def add_flags(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags for a replica, for a file of replicas, and for the display of tables."""
    add_request(parser, ReplicaFlags, fields=("in_tokens", "out_tokens", "max_batch", "max_queue"))
    names = parser.add_argument_group("names, from which token times, memory and batch are estimated")
    add_request(names, NameFlags)
    add_deployment(names, DEPLOYMENT)
    add_request(names, SizingOptions, skipped={"batch_sizing"})
    for title, parts in (("linear law", ("decode", "prefill")), ("iteration law", ("iteration",))):
        group = parser.add_argument_group(title)
        for part in parts:
            for flag, _, unit, text in _LAW_FLAGS[part]:
                kind = number_parser(_SCALES[unit]) if unit in _SCALES else float
                group.add_argument(flag, metavar=unit.upper(), type=kind, help=f"{text} [{unit}]")
        add_request(group, ReplicaFlags, fields=_OF_LAWS[title])
    batch_servers.add_batch_server_flags(parser)
    add_request(parser.add_argument_group("queue model"), ReplicaFlags, fields=_QUEUE)
    parser.add_argument(
        "--batch",
        metavar="FILE",
        help="JSON lines in the format of the reference's queue-analysis service; - for stdin",
    )
    add_output(parser, *tables)


def estimated_of(arguments: argparse.Namespace) -> EstimatedReplica | None:
    """Return the replica estimated from the flags' model and accelerator; None if they name neither.

    Raises:
        SpecError: one of the two is missing, a value is wrong, or token times are given as well.
    """
    given = given_values(arguments, _NAMES)
    if not given:
        return None
    for name in ("model", "accelerator"):
        if name not in given:
            raise SpecError(f"--{name}: missing; an estimate takes --model and --accelerator")
    for flag in (flag for flags in _LAW_FLAGS.values() for flag, *_ in flags):
        if getattr(arguments, flag[2:].replace("-", "_")) is not None:
            raise SpecError(f"{flag}: --model is estimated; give names or token times, not both")

    deployment = Deployment(**given_values(arguments, (*DEPLOYMENT, "eager")) | {"tp": 1})
    with _said_by_flags(Replica):
        return estimate_replica(
            arguments.model,
            arguments.accelerator,
            deployment,
            _shape_of(arguments),
            tp=arguments.tp,
            end=arguments.estimates or "upper",
        )


def _shape_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a replica other than its token times, from the flags."""
    values = given_values(arguments, _SHAPE_FLAGS)
    if "kv_capacity" in values:
        values["kv_capacity_tokens"] = values.pop("kv_capacity")
    return values


def replica_of(arguments: argparse.Namespace) -> Any:
    """Return the replica that the flags describe; errors name the flags."""
    values = _shape_of(arguments)
    for part, flags in _LAW_FLAGS.items():
        given = {
            name: value
            for flag, name, _, _ in flags
            if (value := getattr(arguments, flag[2:].replace("-", "_"))) is not None
        }
        if given:
            values[part] = given
    if values.get("batching", "continuous") != "continuous" and "out_tokens_cv" not in values:
        raise SpecError(f"--out-tokens-cv: {LENGTHS_NEEDED}")
    linear = values.keys() & {"decode", "prefill"}
    if bool(linear) == ("iteration" in values):
        either, other = (
            ", ".join(flag for part in parts for flag, *_ in _LAW_FLAGS[part])
            for parts in (("decode", "prefill"), ("iteration",))
        )
        raise SpecError(
            "give --model and --accelerator, whose token times are estimated, or one latency model: "
            f"{either} (linear law), or {other} (iteration law)"
        )
    with _said_by_flags(Replica):
        return validated(Replica, values)


@contextmanager
def _said_by_flags(replica: Any) -> Iterator[None]:
    """Rename fields to flags in errors raised in the context."""
    try:
        yield
    except SpecError as error:
        path, separator, problem = str(error).partition(": ")
        said = problem.replace("this key is required", "this flag is required")
        raise SpecError(f"{_flag_of(path, replica)}{separator}{said}") from None


def _flag_of(path: str, replica: Any) -> str:
    """Return the flag for a field of the replica document, or for a setting of an estimate."""
    if path.replace("-", "_") in TOKEN_FLAGS:
        return f"--{path}"
    section, _, leaf = path.partition(".")
    for name, field in replica.model_fields.items():
        if field.alias == section:
            if not leaf:
                return f"--{name.replace('_', '-')}"
            inner = next(kind for kind in field.annotation.__args__ if kind is not type(None))
            names = {inner_field.alias or key: key for key, inner_field in inner.model_fields.items()}
            return next(flag for flag, key, *_ in _LAW_FLAGS[name] if key == names[leaf])
    return path
