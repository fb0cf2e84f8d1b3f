"""Sub-command `demo`: demonstrates a part of the program on this machine, without any preparation."""

import argparse
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from optimizer.cli.command import Command, picture_format
from optimizer.cli.flags import add_request, request_of
from optimizer.errors import MissingExtraError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request


class DemoFlags(Request):
    """Flags of `demo`."""

    seconds: Annotated[float, Flag("S")] = Field(100.0, ge=20, le=3600)
    """Duration of the load [s] (100)."""
    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Draw the picture into FILE: .svg, .png or .pdf."""


DEMOS: tuple[Literal["loop"], ...] = ("loop",)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "loop: the control loop follows a step of load on an emulated fleet (docs/loop.md)."
    parser.add_argument("name", metavar="NAME", choices=DEMOS, help=f"demo: {', '.join(DEMOS)}")
    add_request(parser, DemoFlags)


def _demo(arguments: argparse.Namespace) -> None:
    try:
        from rest_server.loop.demo import run_demo
    except ImportError:
        raise MissingExtraError("lightkube", "kubernetes,emulator") from None

    options = request_of(DemoFlags, arguments)
    file_format = None if options.output is None else picture_format(options.output)
    figure = run_demo(options.seconds, lambda line: print(line, flush=True))
    if options.output is not None and file_format is not None:
        from optimizer.render.plots import draw

        options.output.write_bytes(draw(figure, file_format))


COMMANDS = {"demo": Command(_add_demo, _demo)}
