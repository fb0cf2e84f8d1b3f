"""The sub-commands: for each its arguments, and what it does with them.

Imports are made where they are used, so that help answers at once.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A sub-command."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


# --- solve, check, candidates --------------------------------------------------------------------------


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="system: a YAML or JSON file, a directory, or - for stdin"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write JSON in place of tables")


def _number(least: float, most: float, what: str, *, open_end: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (least < value if open_end else least <= value) or value > most:
            sign = "more than" if open_end else "at least"
            raise argparse.ArgumentTypeError(
                f"{text!r}: {what} must be {sign} {least:g} and at most {most:g}"
            )
        return value

    return parse


def _add_solve(parser: argparse.ArgumentParser) -> None:
    _add_path(parser)
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--limited", action="store_true", help="keep to the units that exist")
    limits.add_argument("--unlimited", action="store_true", help="ignore the capacities")
    _add_json(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write the plan as JSON to FILE as well"
    )
    parser.add_argument(
        "--gap",
        metavar="G",
        type=_number(0, 1, "the gap"),
        help="relative gap at which the solver may stop (0 … 1)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=_number(0, 1e6, "the time limit", open_end=True),
        help="time for the whole solve [s]",
    )
    parser.add_argument(
        "--require-complete",
        action="store_true",
        help="exit with status 3 unless every server is served in full",
    )
    parser.add_argument("--timings", action="store_true", help="write the time of each stage to stderr")


def _solve(arguments: argparse.Namespace) -> int | None:
    from optimizer.pipeline import Timings, solve
    from optimizer.report.progress import working
    from optimizer.spec.files import write_text
    from optimizer.spec.system import load_system

    options = {"gap": arguments.gap, "time_limit_s": arguments.time_limit}
    given = {name: value for name, value in options.items() if value is not None}
    if arguments.limited or arguments.unlimited:
        given["unlimited"] = arguments.unlimited
    timings = Timings()
    with working("solving"):
        with timings.stage("read"):
            system = load_system(arguments.path).with_options(**given)
        plan = solve(system, timings=timings)
    if arguments.output is not None:
        write_text(plan.to_json() + "\n", arguments.output)
    if arguments.json:
        print(plan.to_json())
    else:
        from optimizer.report.tables import plan_tables, show

        show(plan_tables(plan, system), sys.stdout)
    if arguments.timings:
        for stage, seconds in timings.stages_s.items():
            print(f"{stage:<12}{seconds * 1000:10.1f} ms", file=sys.stderr)
    if arguments.require_complete:
        sys.stdout.flush()
        plan.raise_for_status()
    return None


def _check(arguments: argparse.Namespace) -> None:
    from optimizer.spec.system import load_system

    system = load_system(arguments.path)
    counts = (
        (len(system.servers), "server"),
        (len(system.service_classes), "service class"),
        (len({model for model, _ in system.profiles}), "model"),
        (len(system.profiles), "profile"),
        (len(system.accelerators), "accelerator"),
        (len(system.capacity), "capacity"),
    )
    print(f"{arguments.path}: good: " + ", ".join(_plural(number, noun) for number, noun in counts))


def _plural(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} " + (
        noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    )


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    _add_path(parser)
    _add_json(parser)


def _candidates(arguments: argparse.Namespace) -> None:
    from optimizer.candidates import find_candidates
    from optimizer.report.progress import working
    from optimizer.spec.system import load_system

    with working("sizing"):
        candidates = find_candidates(load_system(arguments.path))
    if arguments.json:
        _print_json(candidates.to_wire())
    else:
        from optimizer.report.tables import candidate_tables, show

        show(candidate_tables(candidates), sys.stdout)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


# --- analyze, size -------------------------------------------------------------------------------------

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
            "δ: longer prefill per prompt token and request in the batch",
        ),
    ),
    "iteration": (
        ("--iteration-base", "base_ms", "ms", "α: iteration of an empty batch"),
        ("--compute-per-token", "compute_per_token_ms", "ms/token", "β: per token computed"),
        ("--kv-read-per-token", "kv_read_per_token_ms", "ms/token", "γ: per token of KV cache read"),
    ),
}


def _add_replica(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-tokens", metavar="TOKENS", type=float, help="mean prompt length")
    parser.add_argument("--out-tokens", metavar="TOKENS", type=float, help="mean answer length")
    parser.add_argument("--max-batch", metavar="REQUESTS", type=int, help="batch limit")
    parser.add_argument(
        "--max-queue",
        metavar="REQUESTS",
        type=int,
        help="room to wait behind a full batch (10 times the batch)",
    )
    for title, parts in (("linear law", ("decode", "prefill")), ("iteration law", ("iteration",))):
        group = parser.add_argument_group(title)
        for part in parts:
            for flag, _, unit, text in _LAW_FLAGS[part]:
                group.add_argument(flag, metavar=unit.upper(), type=float, help=f"{text} [{unit}]")
        if title == "iteration law":
            group.add_argument(
                "--max-num-tokens", metavar="TOKENS", type=int, help="token budget of one iteration (8192)"
            )
    parser.add_argument(
        "--batch",
        metavar="FILE",
        help="JSON lines in the format of the reference's queue-analysis service; - for stdin",
    )
    _add_json(parser)


def _replica(arguments: argparse.Namespace) -> Any:
    from optimizer.replica import Replica
    from optimizer.spec.messages import validated

    values: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("in_tokens", "out_tokens", "max_batch", "max_queue", "max_num_tokens")
        if getattr(arguments, name) is not None
    }
    for part, flags in _LAW_FLAGS.items():
        given = {
            name: value
            for flag, name, _, _ in flags
            if (value := getattr(arguments, flag[2:].replace("-", "_"))) is not None
        }
        if given:
            values[part] = given
    return validated(Replica, values)


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", metavar="REQ/S", type=float, help="arrival rate [requests/s]")
    _add_replica(parser)


def _analyze(arguments: argparse.Namespace) -> int | None:
    if arguments.batch is not None:
        from optimizer.queue_service import analyze_problem

        return _answer_lines(arguments.batch, analyze_problem)
    from optimizer.errors import SpecError
    from optimizer.replica import analyze_replicas

    replica = _replica(arguments)
    if arguments.rate is None:
        raise SpecError("--rate: missing; give the arrival rate in requests/s")
    found = analyze_replicas([replica], [arguments.rate])[0]
    if arguments.json:
        print(found.model_dump_json(by_alias=True, indent=2))
        return None
    from optimizer.report.tables import performance_table, show

    show(performance_table(found), sys.stdout)
    if found.offered_rps > found.stable_rate_rps:
        print(
            f"inferplan: note: rate {found.offered_rps:g} requests/s exceeds the stable maximum "
            f"{found.stable_rate_rps:g}; {found.loss:.1%} is lost, and the latencies are of the rest",
            file=sys.stderr,
        )
    return None


def _add_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-ttft", metavar="MS", type=float, default=0.0, help="time to first token [ms]; 0: none"
    )
    parser.add_argument(
        "--target-itl", metavar="MS", type=float, default=0.0, help="inter-token latency [ms]; 0: none"
    )
    parser.add_argument(
        "--throughput-target",
        action="store_true",
        help="cap the rate at 0.9 of the largest stable one, as slo-tps does",
    )
    _add_replica(parser)


def _size(arguments: argparse.Namespace) -> int | None:
    if arguments.batch is not None:
        from optimizer.queue_service import size_problem

        return _answer_lines(arguments.batch, size_problem)
    from optimizer.errors import AnalysisError
    from optimizer.replica import LatencyTargets, size_replicas
    from optimizer.spec.messages import validated

    wanted = {"ttft": arguments.target_ttft, "itl": arguments.target_itl, "tps": arguments.throughput_target}
    sizing = size_replicas([_replica(arguments)], [validated(LatencyTargets, wanted, "target: ")])[0]
    if isinstance(sizing, AnalysisError):
        raise sizing
    if arguments.json:
        print(sizing.model_dump_json(by_alias=True, indent=2))
    else:
        from optimizer.report.tables import show, sizing_tables

        show(sizing_tables(sizing), sys.stdout)
    return None


def _answer_lines(path: str, answer: Callable[[Any], Any]) -> int:
    """Answer every line with one line; a bad one with its message, and with exit status 2 in the end."""
    from optimizer.errors import AnalysisError, SpecError
    from optimizer.queue_service import read_problems
    from optimizer.spec.files import read_text

    bad = 0
    for problem in read_problems(read_text(path).splitlines()):
        if isinstance(problem, SpecError):
            bad += 1
            print(json.dumps({"message": str(problem)}, ensure_ascii=False))
            continue
        try:
            print(answer(problem).model_dump_json(by_alias=True))
        except AnalysisError as error:
            print(json.dumps({"message": str(error)}, ensure_ascii=False))
    if bad:
        print(
            f"inferplan: error: {path}: {bad} line{'s' if bad > 1 else ''} could not be read", file=sys.stderr
        )
    return 2 if bad else 0


# --- convert, schema -----------------------------------------------------------------------------------


def _add_convert(parser: argparse.ArgumentParser) -> None:
    _add_path(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="FILE.yaml, FILE.yml or FILE.json"
    )


def _convert(arguments: argparse.Namespace) -> None:
    from optimizer.spec.files import read_parts, write_document
    from optimizer.spec.system import join_parts, joined_document

    parts = read_parts(arguments.path)
    join_parts(parts)  # what contradicts itself is not passed on
    write_document(joined_document(parts), arguments.output)


def _add_nothing(_parser: argparse.ArgumentParser) -> None:
    return


def _schema(_arguments: argparse.Namespace) -> None:
    from optimizer.spec.schema import SystemSpec

    _print_json(SystemSpec.model_json_schema(by_alias=True))


COMMANDS: dict[str, Command] = {
    "solve": Command("find the least-cost plan of a system", _add_solve, _solve),
    "check": Command("say whether a system is well-formed, and what it holds", _add_path, _check),
    "candidates": Command(
        "size every server on every accelerator, or say why it cannot run there", _add_candidates, _candidates
    ),
    "analyze": Command("predict latencies and throughput of one replica at a rate", _add_analyze, _analyze),
    "size": Command("find the largest rate of one replica that meets its targets", _add_size, _size),
    "convert": Command("write a system as one JSON or YAML file", _add_convert, _convert),
    "schema": Command("print the JSON schema of the documents", _add_nothing, _schema),
}
