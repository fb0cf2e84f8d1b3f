"""Sub-command `web`: serves the web page for analysts on this machine."""

import argparse
import threading
import webbrowser
from functools import partial
from typing import Annotated

from optimizer.cli.command import Command, print_stderr
from optimizer.cli.flags import add_request, request_of
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request

DEFAULT_PORT = 8080


class PageFlags(Request):
    """Flags of `web`."""

    port: Annotated[int, Flag("P")] = DEFAULT_PORT
    """Port to listen on; 0 takes a free one (8080)."""
    no_browser: bool = False
    """Print the address without opening a browser."""


def _add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", nargs="?", help="the system to open first; default: none")
    add_request(parser, PageFlags)


def _web(arguments: argparse.Namespace) -> int:
    from rest_server.app import create_page, serve
    from rest_server.settings import load_settings

    def announce(address: str) -> None:
        print_stderr(f"inferplan: listening on {address.rstrip('/')} (Ctrl+C ends it)")
        if not arguments.no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    port = request_of(PageFlags, arguments).port
    settings = load_settings(host="127.0.0.1", port=port)
    return serve(settings, partial(create_page, path=arguments.path), announce, log_level="WARNING")


COMMANDS = {"web": Command(_add_web, _web)}
