"""Sub-command `loop`: measures a fleet, plans it, and scales its workloads."""

import argparse
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from optimizer.cli.command import Command, print_stderr
from optimizer.cli.flags import add_request, request_of
from optimizer.errors import MissingExtraError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.spec.system import load_system


class LoopFlags(Request):
    """Flags of `loop`."""

    once: bool = False
    """Measure one window, run one cycle and exit; the status is 3 if no server has a known load and known
    workloads.
    """
    dry_run: bool = False
    """Decide replicas, but scale nothing and write no state."""
    state: Annotated[Path | None, Flag("FILE")] = None
    """File that keeps the decisions across restarts, for one loop at a time; created if missing."""
    again: Annotated[Path | None, Flag("RECORDS")] = None
    """Repeat the decisions of cycles recorded in RECORDS, and show those that differ; nothing is measured or
    scaled.
    """


def _add_loop(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Writes one JSON record per cycle. docs/loop.md describes configuration and records."
    parser.add_argument("config", metavar="CONFIG", type=Path, help="configuration: a YAML or JSON file")
    add_request(parser, LoopFlags)


def _loop(arguments: argparse.Namespace) -> int:
    try:
        from rest_server.loop.config import read_config
        from rest_server.loop.controller import Controller, check_supported
        from rest_server.loop.kubernetes import Cluster, connected
        from rest_server.loop.serving import serve_loop
        from rest_server.loop.sources import open_source
        from rest_server.loop.state_file import StateFile
    except ImportError:
        raise MissingExtraError("lightkube", "kubernetes") from None
    from rest_server.stopping import end_on_signals

    options = request_of(LoopFlags, arguments)
    config = read_config(arguments.config)
    system = load_system(config.system)
    check_supported(system, config)
    for text in config.warnings:
        print_stderr(f"inferplan: warning: {arguments.config}: {text}")
    if options.again is not None:
        from rest_server.loop.records import repeated

        return _repeat(repeated(system, config, options.again))
    state = None if options.state is None else StateFile(options.state, read_only=options.dry_run)
    target, suffix = config.kubernetes, None if state is None else state.suffix
    fleet = None if target is None else Cluster(connected(target), target, system, suffix)
    loop = Controller(system, config, open_source(config), fleet, _write, state, options.dry_run)
    serve_loop(loop)
    end_on_signals()
    if not options.once:
        loop.run(threading.Event())
        return 0
    record = loop.once()
    unknown = {
        name: f"{reading['reason']}: {reading['detail']}"
        for name, reading in record["inputs"]["readings"].items()
        if "reason" in reading
    } | record["holds"]
    for name, reason in unknown.items():
        print_stderr(f"server {name!r} is not scaled: {reason}")
    return 3 if unknown.keys() >= system.servers.keys() else 0


def _write(record: dict[str, object]) -> None:
    print(json.dumps(record, ensure_ascii=False, allow_nan=False), flush=True)


def _repeat(cycles: Iterator[tuple[dict[str, object], list[str]]]) -> int:
    """Print the decisions of repeated cycles that differ from the records; return the exit status."""
    count = differing = 0
    for record, differences in cycles:
        count += 1
        differing += bool(differences)
        for text in differences:
            print(f"{record['time']} {text}")
    print_stderr(f"{count} cycles repeated, {differing} differ")
    return 4 if differing else 0


COMMANDS = {"loop": Command(_add_loop, _loop)}
