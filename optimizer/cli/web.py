"""The sub-command web: the page for analysts, on this machine."""

import argparse
import threading
import webbrowser
from functools import partial

from optimizer.cli.command import Command

DEFAULT_PORT = 8080


def _add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", nargs="?", help="the system to open first; default: none")
    parser.add_argument(
        "--port",
        metavar="P",
        type=int,
        default=DEFAULT_PORT,
        help=f"port to listen on; 0 takes a free one ({DEFAULT_PORT})",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address, open no browser")


def _web(arguments: argparse.Namespace) -> int:
    from rest_server.app import create_page, serve
    from rest_server.settings import load_settings

    def announce(address: str) -> None:
        if not arguments.no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    settings = load_settings(host="127.0.0.1", port=arguments.port)
    return serve(settings, partial(create_page, path=arguments.path), announce)


COMMANDS = {"web": Command(_add_web, _web)}
