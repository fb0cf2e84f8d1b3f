"""The sub-commands for profiles from measurements: fit, predict, profiles."""

import argparse
from pathlib import Path

from optimizer.cli.command import Command, add_output, print_stderr, show_answer
from optimizer.errors import SpecError
from optimizer.fitting.fit import FitOptions, MeasuredSetup
from optimizer.fitting.server import ServerSettings
from optimizer.jobs.fitting import add_profile, fit_reports, predict_points
from optimizer.render.fit_sections import fit_sections, prediction_sections
from optimizer.render.progress import telling, working
from optimizer.spec.samples import PREFIX
from optimizer.spec.writing import check_suffix, write_document, write_text

FORMATS = "GuideLLM (JSON, CSV, HTML), vllm bench serve, inference-perf, AIPerf, CSV of points"


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or more")
    return value


def _add_server(server: argparse._ArgumentGroup) -> None:
    server.add_argument(
        "--kv-capacity", metavar="TOKENS", type=_count, help="tokens that fit in the KV cache (no limit)"
    )
    server.add_argument(
        "--max-seqs", metavar="N", type=_count, help="most requests in one iteration (no limit)"
    )
    server.add_argument(
        "--max-num-tokens",
        metavar="TOKENS",
        type=_count,
        default=8192,
        help="most tokens in one iteration (8192)",
    )
    server.add_argument(
        "--scheduler",
        choices=("chunked", "prefill-first"),
        default="chunked",
        help="how prompts are computed (chunked)",
    )


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"Reports of: {FORMATS}."
    parser.add_argument("files", metavar="FILE", nargs="+", help="reports of one model on one accelerator")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the profile, YAML or JSON")
    _add_server(parser.add_argument_group("the server, which no report describes"))
    client = parser.add_argument_group("the client")
    client.add_argument(
        "--max-in-flight",
        metavar="N",
        type=_count,
        help="most requests that the client keeps in flight (the report's)",
    )
    key = parser.add_argument_group("what was measured")
    key.add_argument("--model", metavar="NAME", help="name of the model (the report's)")
    key.add_argument("--acc", metavar="NAME", default="unknown", help="name of the accelerator")
    key.add_argument("--cards", metavar="N", type=_count, default=1, help="accelerators of the replica (1)")
    key.add_argument("--weights", metavar="FORMAT", help="format of the weights")
    key.add_argument("--engine", metavar="TEXT", help="serving engine and its version")
    parser.add_argument(
        "--hold-out",
        metavar="N",
        type=_count,
        default=0,
        help="leave the N highest rates of each shape and full throughput out of the fit, "
        "and give the errors there",
    )
    add_output(parser, "law", "errors")


def _options(arguments: argparse.Namespace) -> FitOptions:
    return FitOptions(
        hold_out=arguments.hold_out,
        max_in_flight=arguments.max_in_flight,
        key=MeasuredSetup(
            arguments.model, arguments.acc, arguments.cards, arguments.weights, arguments.engine
        ),
        settings=ServerSettings(
            arguments.kv_capacity, arguments.max_seqs, arguments.max_num_tokens, arguments.scheduler
        ),
    )


def _fit(arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        check_suffix(arguments.output)
    with telling("fitting") as progress:
        profile = fit_reports(arguments.files, _options(arguments), progress)
    if arguments.output is not None:
        write_document(profile.document(), arguments.output)
        print_stderr(f"inferplan: {arguments.output} written")
    show_answer(arguments, profile.document, lambda: fit_sections(profile))


def _add_predict(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A row with duration_s or requests is replayed as that run; another is a steady state. Columns: "
        "in_tokens, out_tokens, in_tokens_cv, out_tokens_cv, lengths (uniform, lognormal, fixed), arrivals "
        "(constant, poisson, closed), rate_rps, duration_s, requests, max_in_flight, burst; measured, if "
        "known: ttft_ms (median), itl_ms (mean), throughput_rps."
    )
    parser.add_argument("profile", metavar="PROFILE", help="a profile written by fit")
    parser.add_argument("points", metavar="POINTS.csv", help="one row per run, or a report that fit reads")
    add_output(parser, "predictions")


def _predict(arguments: argparse.Namespace) -> None:
    with working("predicting"):
        rows = predict_points(arguments.profile, arguments.points)
    show_answer(
        arguments,
        lambda: [row.model_dump(mode="json", by_alias=True, exclude_none=True) for row in rows],
        lambda: prediction_sections(rows),
    )


def _add_profiles(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    add = commands.add_parser(
        "add", help="put a fitted profile into a system", description="Put a fitted profile into a system."
    )
    add.add_argument("profile", metavar="PROFILE", help="a profile written by fit")
    add.add_argument("path", metavar="SYSTEM", help="the system: a file, a directory, - for stdin")
    add.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write the whole system there (SYSTEM: the file that has the entry)",
    )
    add.add_argument("--model", metavar="NAME", help="name of the model in the system (the profile's)")
    add.add_argument("--acc", metavar="NAME", help="name of the accelerator in the system (the profile's)")


def _profiles(arguments: argparse.Namespace) -> None:
    output = arguments.output
    if output is None and (arguments.path == "-" or arguments.path.startswith(PREFIX)):
        raise SpecError("-o: missing; name the file to write the whole system to")
    if output is not None:
        check_suffix(output)
    found = add_profile(arguments.profile, arguments.path, arguments.model, arguments.acc)
    target = output or Path(found.source)
    text = found.text_for(target)
    if text is None and output is None:
        raise SpecError(
            f"{target}: an anchor or a merge shares the text of the entry with other places; write the whole "
            "system to another file with -o"
        )
    if text is None:
        write_document(found.document(), target)
    else:
        write_text(text, target)
    print_stderr(f"inferplan: {target} written")


COMMANDS = {
    "fit": Command(_add_fit, _fit),
    "predict": Command(_add_predict, _predict),
    "profiles": Command(_add_profiles, _profiles),
}
