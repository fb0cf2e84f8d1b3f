"""Sub-command `estimate`: estimates profiles without measurements."""

import argparse
from typing import Annotated

from optimizer.cli.command import Command, add_output, show_answer
from optimizer.cli.flags import add_request, given_values, request_of
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.memory import SETTINGS, MemoryQuestion, memory_of
from optimizer.jobs.requests import Request
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.documents import estimate_document
from optimizer.profiles.estimate import estimate_profile, find_model, find_slice
from optimizer.profiles.points import estimate_points
from optimizer.render.estimate_sections import estimate_sections, point_sections
from optimizer.render.memory_sections import memory_sections
from optimizer.schema.files import read_text

_ONLY_MEMORY = [
    name for name in MemoryQuestion.model_fields if name not in {"model", "accelerators", *SETTINGS}
]


class EstimateFlags(Request):
    """Flags of `estimate` beyond the deployment of the model."""

    at_batch: Annotated[int | None, Flag("N")] = None
    """Batch size at which to state α (half the largest)."""
    points: Annotated[str | None, Flag("FILE")] = None
    """Estimate every row of a CSV file, to compare with measurements; - for stdin."""
    ignore_key: Annotated[tuple[str, ...], Flag("KEY")] = ()
    """A key of the config.json that has no effect on memory and times; can be repeated."""
    memory: bool = False
    """Show the number of requests that fit in memory instead of token times."""


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name of the catalogue, or the path of a config.json"
    )
    parser.add_argument(
        "accelerator",
        metavar="ACCELERATOR",
        nargs="*",
        help="a name from the catalogue: H100, 4xH100; with --memory one or more",
    )
    add_request(parser, MemoryQuestion, fields=SETTINGS)
    add_request(parser, EstimateFlags)
    add_request(parser.add_argument_group("memory"), MemoryQuestion, fields=_ONLY_MEMORY)
    add_output(parser, "estimate", "alpha", "points", "request", "memory", "layers")


def _estimate(arguments: argparse.Namespace) -> None:
    if arguments.memory:
        _memory(arguments)
        return
    for name in given_values(arguments, _ONLY_MEMORY):
        raise SpecError(f"--{name.replace('_', '-')}: needs --memory; add it, or remove the flag")
    settings = given_values(arguments, SETTINGS)
    if arguments.points is not None:
        others = {"model": arguments.model, "at-batch": arguments.at_batch, **settings, "engine": None}
        given = [name for name, value in others.items() if value is not None]
        if given:
            raise SpecError(f"--points reads all values from the file; remove {', '.join(given)}")
        _points(arguments)
        return
    if arguments.model is None or not arguments.accelerator:
        raise SpecError(
            "name a model and an accelerator, or give --points FILE; 'inferplan catalogue' lists the names"
        )

    if len(arguments.accelerator) > 1:
        raise SpecError(
            f"{arguments.accelerator[1]}: one accelerator is estimated; give one, or add --memory"
        )
    accelerator, settings["tp"] = find_slice(arguments.accelerator[0], arguments.tp)
    model = find_model(arguments.model, arguments.ignore_key or ())
    estimate = estimate_profile(model, accelerator, Deployment(**settings), at_batch=arguments.at_batch)
    show_answer(arguments, lambda: estimate_document(estimate), lambda: estimate_sections(estimate))


def _points(arguments: argparse.Namespace) -> None:
    rows = estimate_points(read_text(arguments.points), arguments.points, engine=arguments.engine)
    show_answer(arguments, lambda: [row.document() for row in rows], lambda: point_sections(rows))


def _memory(arguments: argparse.Namespace) -> None:
    for name in ("points", "at_batch"):
        if getattr(arguments, name) is not None:
            raise SpecError(f"--{name.replace('_', '-')}: --memory does not use it; remove one of the two")
    if arguments.model is None or not arguments.accelerator:
        raise SpecError("--memory: name a model and accelerators; 'inferplan catalogue' lists the names")
    arguments.accelerators = tuple(arguments.accelerator)
    answer = memory_of(request_of(MemoryQuestion, arguments), arguments.model, arguments.ignore_key or ())
    show_answer(arguments, lambda: answer.model_dump(by_alias=True), lambda: memory_sections(answer))


COMMANDS = {"estimate": Command(_add_estimate, _estimate)}
