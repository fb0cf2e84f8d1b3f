"""Sub-command `work`: processes the jobs of a queue with an emulated fleet."""

import argparse
import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from optimizer.cli.command import Command
from optimizer.cli.flags import add_request, request_of
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.schema.files import read_text


class WorkFlags(Request):
    """Flags of `work`."""

    jobs: Annotated[int, Flag("N")] = Field(4, ge=1, le=1000)
    """Maximum jobs in progress at once (4)."""
    transfers: Annotated[int, Flag("N")] = Field(4, ge=1, le=1000)
    """Maximum downloads at once, and maximum uploads at once (4)."""
    lease: Annotated[float, Flag("S")] = Field(30.0, gt=0, le=86_400)
    """Duration of a job's lease, which is renewed while the worker runs [s] (30)."""
    name: Annotated[str, Flag("NAME")] = ""
    """Name of the worker; default: host and process."""
    once: bool = False
    """Exit when no job is waiting."""
    timeout: Annotated[float, Flag("S")] = Field(300.0, gt=0, le=86_400)
    """Timeout for a part of a download, an inference or an upload, after which the job fails [s] (300)."""
    key_file: Annotated[Path | None, Flag("FILE")] = None
    """File with the API key for the router (no key)."""


def _add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="address of the fleet: http://HOST:PORT")
    add_request(parser, WorkFlags)


def _work(arguments: argparse.Namespace) -> int:
    from rest_server.emulator.worker import Worker, WorkerSettings

    options = request_of(WorkFlags, arguments)
    parts = urlsplit(arguments.url)
    if parts.scheme != "http" or not parts.hostname:
        raise SpecError(f"URL: {arguments.url!r} must look like 'http://127.0.0.1:8100'")
    name = options.name or f"{socket.gethostname()}-{os.getpid()}"
    key = "" if options.key_file is None else read_text(options.key_file).strip()
    settings = WorkerSettings(
        arguments.url,
        name,
        options.jobs,
        options.transfers,
        options.lease,
        options.once,
        options.timeout,
        key,
    )

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Worker(settings, lambda line: print(json.dumps(line), flush=True)).run(stop)

    asyncio.run(run())
    return 0


COMMANDS = {"work": Command(_add_work, _work)}
