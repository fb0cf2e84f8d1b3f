"""Sub-command `work`: processes the jobs of a queue with an emulated fleet."""

import argparse
import asyncio
import json
import signal
from urllib.parse import urlsplit

from optimizer.cli.command import Command
from optimizer.cli.flags import add_request, request_of
from optimizer.errors import SpecError


def _add_work(parser: argparse.ArgumentParser) -> None:
    from rest_server.emulator.worker import WorkerSettings

    parser.add_argument("url", metavar="URL", help="address of the fleet: http://HOST:PORT")
    add_request(parser, WorkerSettings)


def _work(arguments: argparse.Namespace) -> int:
    from rest_server.emulator.worker import Worker, WorkerSettings

    parts = urlsplit(arguments.url)
    if parts.scheme != "http" or not parts.hostname:
        raise SpecError(f"URL: {arguments.url!r} must look like 'http://127.0.0.1:8100'")
    settings = request_of(WorkerSettings, arguments)
    worker = Worker(arguments.url, settings, lambda line: print(json.dumps(line), flush=True))

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await worker.run(stop)

    asyncio.run(run())
    return 0


COMMANDS = {"work": Command(_add_work, _work)}
