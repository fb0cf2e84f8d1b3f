"""Sub-commands for profiles from measurements: `fit`, `predict`, `profiles`."""

import argparse
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.cli.command import Command, add_output, print_stderr, show_answer
from optimizer.cli.flags import add_request, request_of
from optimizer.errors import SpecError
from optimizer.fitting.options import UNKNOWN, FitOptions, MeasuredSetup, ServerSettings, Stated
from optimizer.jobs.fitting import add_profile, fit_reports, predict_points
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.render.fit_sections import fit_sections, prediction_sections
from optimizer.render.progress import telling, working
from optimizer.schema.samples import PREFIX
from optimizer.spec.writing import check_suffix, write_document, write_text
from optimizer.timing.engine import SchedulerName

FORMATS = (
    "GuideLLM (JSON, YAML, CSV), vllm bench serve, SGLang, TensorRT-LLM (benchmark_serving and "
    "trtllm-bench), InferenceX, inference-perf, AIPerf, llm-d, CSV of points"
)


_Count = Annotated[int | None, Flag("N")]
_Tokens = Annotated[int | None, Flag("TOKENS")]
_Name = Annotated[str | None, Flag("NAME")]


class RunFlags(Request):
    """Flags of `fit` and `predict`: facts about the runs that a report does not contain."""

    replicas: _Count = Field(None, ge=1)
    """Number of equal replicas behind the measured address (the report's, otherwise 1)."""
    in_tokens: Annotated[float | None, Flag("TOKENS")] = Field(None, gt=0)
    """Mean prompt length, for reports that do not state it."""
    in_tokens_cv: Annotated[float | None, Flag("CV")] = Field(None, ge=0)
    """Coefficient of variation of prompt lengths, for reports that do not state it."""
    out_tokens_cv: Annotated[float | None, Flag("CV")] = Field(None, ge=0)
    """Coefficient of variation of output lengths, for reports that do not state it."""

    @property
    def stated(self) -> Stated:
        """Facts about the runs that the flags state."""
        return Stated(self.replicas, None, self.in_tokens, self.in_tokens_cv, self.out_tokens_cv)


class FitFlags(RunFlags):
    """Flags of `fit`: facts about the server, the client and the model that reports do not contain."""

    kv_capacity: _Tokens = Field(None, ge=1)
    """Number of tokens that fit in the KV cache (no limit)."""
    max_seqs: _Count = Field(None, ge=1)
    """Maximum requests in one iteration (no limit)."""
    max_num_tokens: _Tokens = Field(None, ge=1)
    """Maximum tokens in one iteration (8192, or another one that the runs show)."""
    scheduler: SchedulerName = "chunked"
    """Scheduling of prefill: chunked or prefill-first (chunked)."""
    max_in_flight: _Count = Field(None, ge=1)
    """Maximum requests that the client keeps in flight (the report's)."""
    model: _Name = None
    """Name of the model (that of the report)."""
    acc: Annotated[str, Flag("NAME")] = UNKNOWN
    """Name of the accelerator."""
    cards: _Count = Field(None, ge=1)
    """Number of accelerators of one replica (the report's, otherwise 1)."""
    weights: Annotated[str | None, Flag("FORMAT")] = None
    """Number format of the weights, such as fp8."""
    engine: Annotated[str | None, Flag("NAME:VERSION")] = None
    """Serving engine and its version, such as vllm:0.11 or sglang:0.5."""
    hold_out: Annotated[int, Flag("N")] = Field(0, ge=1)
    """Exclude the N highest rates (or numbers of users) of each request shape from the fit, report errors."""
    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write the profile to FILE.yaml or FILE.json."""

    @property
    def options(self) -> FitOptions:
        """Options of the fit that the flags set."""
        return FitOptions(
            hold_out=self.hold_out,
            max_in_flight=self.max_in_flight,
            key=MeasuredSetup(self.model, self.acc, self.cards, self.weights, self.engine),
            stated=self.stated,
            settings=ServerSettings(self.kv_capacity, self.max_seqs, self.max_num_tokens, self.scheduler),
        )


RUN_FIELDS = ("replicas", "in_tokens", "in_tokens_cv", "out_tokens_cv")
_GROUPS = {
    "the server, which no report describes": ("kv_capacity", "max_seqs", "max_num_tokens", "scheduler"),
    "the client": ("max_in_flight",),
    "what was measured": ("model", "acc", "cards", "weights", "engine"),
    "the runs, if a report does not describe them": RUN_FIELDS,
}


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"Reports of: {FORMATS}."
    parser.add_argument("files", metavar="FILE", nargs="+", help="reports of one model on one accelerator")
    for title, fields in _GROUPS.items():
        add_request(parser.add_argument_group(title), FitFlags, fields=fields)
    add_request(parser, FitFlags, fields=("hold_out", "output"))
    add_output(parser, "law", "errors")


def _fit(arguments: argparse.Namespace) -> None:
    flags = request_of(FitFlags, arguments)
    if flags.output is not None:
        check_suffix(flags.output)
    with telling("fitting") as progress:
        profile = fit_reports(arguments.files, flags.options, progress)
    if flags.output is not None:
        write_document(profile.document(), flags.output)
        print_stderr(f"inferplan: {flags.output} written")
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
    add_request(parser, RunFlags)
    add_output(parser, "predictions")


def _predict(arguments: argparse.Namespace) -> None:
    notes: list[str] = []
    with working("predicting"):
        stated = request_of(RunFlags, arguments).stated
        rows = predict_points(arguments.profile, arguments.points, stated, notes.append)
    for note in notes:
        print_stderr(f"inferplan: note: {note}")
    show_answer(
        arguments,
        lambda: [row.model_dump(mode="json", by_alias=True, exclude_none=True) for row in rows],
        lambda: prediction_sections(rows),
    )


class ProfileFlags(Request):
    """Flags of `profiles`: the place of a fitted profile in a system."""

    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write the entire system to FILE (default: change the file of SYSTEM that contains the entry)."""
    model: _Name = None
    """Name of the model in the system (the profile's)."""
    acc: _Name = None
    """Name of the accelerator in the system (the profile's)."""


def _add_profiles(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    add = commands.add_parser(
        "add", help="put a fitted profile into a system", description="Put a fitted profile into a system."
    )
    add.add_argument("profile", metavar="PROFILE", help="a profile written by fit")
    add.add_argument("path", metavar="SYSTEM", help="the system: a file, a directory, - for stdin")
    add_request(add, ProfileFlags)


def _profiles(arguments: argparse.Namespace) -> None:
    output = arguments.output
    if output is None and (arguments.path == "-" or arguments.path.startswith(PREFIX)):
        raise SpecError("-o: missing; name the output file for the entire system")
    if output is not None:
        check_suffix(output)
    profile = add_profile(arguments.profile, arguments.path, arguments.model, arguments.acc)
    target = output or Path(profile.source)
    text = profile.text_for(target)
    if text is None and output is None:
        raise SpecError(
            f"{target}: an anchor or a merge shares the text of the entry with other places; write "
            "the entire system to another file with -o"
        )
    if text is None:
        write_document(profile.document(), target)
    else:
        write_text(text, target)
    if profile.note is not None:
        print_stderr(f"inferplan: note: {profile.note}")
    print_stderr(f"inferplan: {target} written")


COMMANDS = {
    "fit": Command(_add_fit, _fit),
    "predict": Command(_add_predict, _predict),
    "profiles": Command(_add_profiles, _profiles),
}
