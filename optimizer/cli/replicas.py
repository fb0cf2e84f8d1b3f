"""The sub-commands for one replica: analyze, size."""

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optimizer.cli import batch_servers
from optimizer.cli.command import Command, add_output, print_json, quantity, show_tables, tell
from optimizer.cli.solving import announced
from optimizer.units import (
    MILLISECONDS,
    MILLISECONDS_PER_REQUEST,
    MILLISECONDS_PER_TOKEN,
    REQUESTS_PER_SECOND,
    TOKENS,
)

if TYPE_CHECKING:
    from optimizer.batch_rows import BatchAnswer, BatchRow
    from optimizer.replica import Replica
    from optimizer.simulation.replicas import Effort

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

_TOKENS = quantity(TOKENS)
_REQUESTS_PER_SECOND = quantity(REQUESTS_PER_SECOND)
_MILLISECONDS = quantity(MILLISECONDS)
_SCALES = {scale.unit: scale for scale in (MILLISECONDS, MILLISECONDS_PER_TOKEN, MILLISECONDS_PER_REQUEST)}
_SHAPE_FLAGS = (
    "in_tokens",
    "out_tokens",
    "max_batch",
    "max_queue",
    "max_num_tokens",
    "scheduler",
    "kv_capacity",
    "queue_model",
    "batching",
    "arrival_cv",
    "in_tokens_cv",
    "out_tokens_cv",
)
_OTHER_FLAGS = (
    *_SHAPE_FLAGS,
    *(flag[2:].replace("-", "_") for part in _LAW_FLAGS.values() for flag, *_ in part),
)
"""The flags of servers that answer with tokens, as arguments are named; batch servers share some."""
_TARGET_FLAGS: dict[str, object] = {
    "target_ttft": 0.0,
    "target_itl": 0.0,
    "target_e2e": 0.0,
    "percentile": None,
    "throughput_target": False,
}
"""The flags of targets, and what stands where they are not given."""


def _add_replica(parser: argparse.ArgumentParser, *tables: str) -> None:
    parser.add_argument("--in-tokens", metavar="TOKENS", type=_TOKENS, help="mean input length")
    parser.add_argument("--out-tokens", metavar="TOKENS", type=_TOKENS, help="mean output length")
    parser.add_argument("--max-batch", metavar="REQUESTS", type=int, help="batch limit")
    parser.add_argument(
        "--max-queue",
        metavar="REQUESTS",
        type=int,
        help="queue capacity: requests that may wait behind a full batch (10 times the batch)",
    )
    for title, parts in (("linear law", ("decode", "prefill")), ("iteration law", ("iteration",))):
        group = parser.add_argument_group(title)
        for part in parts:
            for flag, _, unit, text in _LAW_FLAGS[part]:
                kind = quantity(_SCALES[unit]) if unit in _SCALES else float
                group.add_argument(flag, metavar=unit.upper(), type=kind, help=f"{text} [{unit}]")
        if title == "linear law":
            group.add_argument(
                "--batching", metavar="NAME", help="continuous, static or padded: how requests share a batch"
            )
        if title == "iteration law":
            group.add_argument(
                "--max-num-tokens", metavar="TOKENS", type=int, help="token budget of one iteration (8192)"
            )
            group.add_argument(
                "--scheduler", metavar="NAME", help="chunked or prefill-first: how prompts are computed"
            )
    batch_servers.add_flags(parser)
    _add_queue(parser.add_argument_group("queue model"))
    parser.add_argument(
        "--batch",
        metavar="FILE",
        help="JSON lines in the format of the reference's queue-analysis service; - for stdin",
    )
    add_output(parser, *tables)


def _add_queue(group: Any) -> None:
    group.add_argument(
        "--queue-model",
        metavar="NAME",
        help="reference (means) or continuous (percentiles); by default that of the law",
    )
    group.add_argument(
        "--kv-capacity", metavar="TOKENS", type=int, help="KV cache; continuous caps the batch by it"
    )
    for name, text in (
        ("arrival", "times between arrivals"),
        ("in-tokens", "input length"),
        ("out-tokens", "output length"),
    ):
        group.add_argument(
            f"--{name}-cv", metavar="CV", type=float, help=f"coefficient of variation of the {text} (1)"
        )


def _replica(arguments: argparse.Namespace) -> Any:
    """Return the replica that the flags describe; what is wrong is said in terms of the flags."""
    from optimizer.errors import SpecError
    from optimizer.replica import Replica
    from optimizer.spec.messages import validated

    values: dict[str, Any] = {
        name: value for name in _SHAPE_FLAGS if (value := getattr(arguments, name)) is not None
    }
    if "kv_capacity" in values:
        values["kv_capacity_tokens"] = values.pop("kv_capacity")
    for part, flags in _LAW_FLAGS.items():
        given = {
            name: value
            for flag, name, _, _ in flags
            if (value := getattr(arguments, flag[2:].replace("-", "_"))) is not None
        }
        if given:
            values[part] = given
    if values.get("batching", "continuous") != "continuous" and "out_tokens_cv" not in values:
        from optimizer.spec.assumptions import LENGTHS_NEEDED

        raise SpecError(f"--out-tokens-cv: {LENGTHS_NEEDED}")
    linear = values.keys() & {"decode", "prefill"}
    if bool(linear) == ("iteration" in values):
        either, other = (
            ", ".join(flag for part in parts for flag, *_ in _LAW_FLAGS[part])
            for parts in (("decode", "prefill"), ("iteration",))
        )
        raise SpecError(f"give one latency model: {either} (linear law), or {other} (iteration law)")
    try:
        return validated(Replica, values)
    except SpecError as error:
        path, _, problem = str(error).partition(": ")
        said = problem.replace("this key is required", "this flag is required")
        raise SpecError(f"{_flag_of(path, Replica)}: {said}") from None


def _flag_of(path: str, replica: Any) -> str:
    """Return the flag whose value stands at a path of the replica document."""
    section, _, leaf = path.partition(".")
    for name, field in replica.model_fields.items():
        if field.alias == section:
            if not leaf:
                return f"--{name.replace('_', '-')}"
            inner = next(kind for kind in field.annotation.__args__ if kind is not type(None))
            names = {inner_field.alias or key: key for key, inner_field in inner.model_fields.items()}
            return next(flag for flag, key, *_ in _LAW_FLAGS[name] if key == names[leaf])
    return path


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate", metavar="REQ/S", type=_REQUESTS_PER_SECOND, help="arrival rate [requests/s]"
    )
    _add_replica(parser, "performance", "simulated")
    group = parser.add_argument_group("simulation")
    group.add_argument("--simulate", action="store_true", help="simulate the replica as well")
    group.add_argument("--requests", metavar="N", type=int, help="requests to simulate (20,000)")
    group.add_argument("--seed", metavar="S", type=int, help="seed of the random numbers (1)")


def _effort(arguments: argparse.Namespace) -> "Effort | None":
    """Return how much to simulate; none: nothing is simulated."""
    from optimizer.errors import SpecError

    given = {name: value for name in ("requests", "seed") if (value := getattr(arguments, name)) is not None}
    if not arguments.simulate:
        if given:
            raise SpecError(f"--{next(iter(given))}: nothing is simulated; add --simulate, or remove it")
        return None
    from optimizer.simulation.replicas import Effort

    return Effort(**given)


def _simulated(replica: "Replica | BatchRow", rate_rps: float, effort: "Effort") -> Any:
    """Return what a server does when it is simulated, or that it is overloaded."""
    from optimizer.jobs import simulate_replica

    with announced():
        return simulate_replica(replica, rate_rps, effort)


def _analyze(arguments: argparse.Namespace) -> int | None:
    effort = _effort(arguments)
    if arguments.batch is not None:
        from optimizer.replica_rows import analyze_row

        _refuse_beside_batch(arguments, {"rate": None})
        return _answer_lines(arguments.batch, analyze_row, effort)
    from optimizer.errors import SpecError

    rate_rps = arguments.rate
    row = batch_servers.row_of(arguments, _OTHER_FLAGS, rate_rps or 0.0)
    replica: Any = row or _replica(arguments)
    if rate_rps is None:
        raise SpecError("--rate: missing; give the arrival rate in requests/s")
    if row is not None:
        with announced():
            answer = batch_servers.analyzed(row)
        _show_batch_server(arguments, answer, effort and _simulated(row, rate_rps, effort))
        return None
    from optimizer.jobs import analyze_replicas

    found = analyze_replicas([replica], [rate_rps])[0]
    simulated = None if effort is None else _simulated(replica, rate_rps, effort)
    if arguments.json:
        print_json(_values(found, simulated))
    else:
        from optimizer.render.replica_tables import performance_tables

        show_tables(performance_tables(found, simulated), arguments)
    if found.offered_rps > found.stable_rate_rps:
        tell(
            f"inferplan: note: rate {found.offered_rps:g} requests/s exceeds the stable maximum "
            f"{found.stable_rate_rps:g}; {found.loss:.1%} is lost, and the latencies are those of the rest"
        )
    return None


def _show_batch_server(arguments: argparse.Namespace, found: "BatchAnswer", simulated: Any = None) -> None:
    if arguments.json:
        print_json(_values(found, simulated))
    else:
        from optimizer.render.replica_tables import batch_tables

        show_tables(batch_tables(found, simulated), arguments)


def _values(found: Any, simulated: Any) -> dict[str, Any]:
    """Return what one server does, and beside it what was simulated, if it was, as they are written."""
    values: dict[str, Any] = found.model_dump(by_alias=True)
    if simulated is not None:
        values["simulated"] = simulated.model_dump(by_alias=True)
    return values


def _add_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-ttft",
        metavar="MS",
        type=_MILLISECONDS,
        default=0.0,
        help="time to first token [ms]; 0: none",
    )
    parser.add_argument(
        "--target-itl",
        metavar="MS",
        type=_MILLISECONDS,
        default=0.0,
        help="inter-token latency [ms]; 0: none",
    )
    parser.add_argument(
        "--target-e2e",
        metavar="MS",
        type=_MILLISECONDS,
        default=0.0,
        help="time to the last token [ms]; 0: none",
    )
    parser.add_argument(
        "--percentile", metavar="P", type=float, help="percentile at which the targets must hold (the mean)"
    )
    parser.add_argument(
        "--throughput-target",
        action="store_true",
        help="cap the rate at 0.9 of the largest stable one, as slo-tps does",
    )
    _add_replica(parser, "rates", "performance")


def _size(arguments: argparse.Namespace) -> int | None:
    if arguments.batch is not None:
        from optimizer.replica_rows import size_row

        _refuse_beside_batch(arguments, _TARGET_FLAGS)
        return _answer_lines(arguments.batch, size_row)
    from optimizer.errors import AnalysisError, SpecError
    from optimizer.jobs import size_batch, size_replicas
    from optimizer.replica import LatencyTargets
    from optimizer.spec.messages import validated

    row = batch_servers.row_to_size(arguments, _OTHER_FLAGS, arguments.percentile)
    if row is not None:
        with announced():
            sized = size_batch(row)
        _show_batch_server(arguments, sized)
        return None
    wanted = {
        "ttft": arguments.target_ttft,
        "itl": arguments.target_itl,
        "e2e": arguments.target_e2e,
        "percentile": arguments.percentile,
        "tps": arguments.throughput_target,
    }
    try:
        targets = validated(LatencyTargets, wanted)
    except SpecError as error:
        flag = "--" if str(error).startswith("percentile") else "--target-"
        raise SpecError(f"{flag}{error}") from None
    sizing = size_replicas([_replica(arguments)], [targets])[0]
    if isinstance(sizing, AnalysisError):
        raise sizing
    if arguments.json:
        print_json(_values(sizing, None))
    else:
        from optimizer.render.replica_tables import sizing_tables

        show_tables(sizing_tables(sizing, targets), arguments)
    return None


def _refuse_beside_batch(arguments: argparse.Namespace, own: dict[str, object]) -> None:
    """Refuse flags that describe a replica beside ``--batch``, whose lines describe theirs."""
    from optimizer.errors import SpecError

    defaults = dict.fromkeys((*_OTHER_FLAGS, *batch_servers.OWN_FLAGS)) | own
    given = [name for name, default in defaults.items() if getattr(arguments, name) != default]
    if given:
        raise SpecError(f"--batch: its lines give everything; remove --{given[0].replace('_', '-')}")


def _answer_lines(
    path: str,
    answer: Callable[[Any], Any],
    effort: "Effort | None" = None,
) -> int:
    """Answer every line with one line; a bad one with its message, and with exit status 2 in the end."""
    from optimizer.compat.queue_service import read_problems
    from optimizer.errors import AnalysisError, SpecError
    from optimizer.replica_rows import kind_of_row
    from optimizer.spec.files import lines_of, read_text

    bad = 0
    for problem in read_problems(lines_of(read_text(path)), kind_of_row):
        if isinstance(problem, SpecError):
            bad += 1
            print(json.dumps({"message": str(problem)}, ensure_ascii=False))
            continue
        try:
            found = answer(problem)
            if effort is None:
                print(found.model_dump_json(by_alias=True))
                continue
            simulated = _simulated(problem.replica_to_simulate(), problem.rate_rps, effort)
            print(json.dumps(_values(found, simulated), ensure_ascii=False, separators=(",", ":")))
        except (AnalysisError, SpecError) as error:
            print(json.dumps({"message": str(error)}, ensure_ascii=False))
    if bad:
        tell(f"inferplan: error: {path}: {bad} line{'s' if bad > 1 else ''} could not be read")
    return 2 if bad else 0


COMMANDS = {
    "analyze": Command("predict latencies and throughput of one replica at a rate", _add_analyze, _analyze),
    "size": Command("find the largest rate of one replica that meets its targets", _add_size, _size),
}
