"""The sub-command serve: the REST service."""

import argparse
from pathlib import Path

from optimizer.cli.command import Command


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_fleet(parser)
    _add_address(parser)
    _add_routes(parser)


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    """Add what the service holds, and what becomes of its plans."""
    parser.add_argument(
        "-F",
        "--stateful",
        action="store_true",
        default=None,
        help="hold a fleet that requests change; otherwise every request brings its system",
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        help="file that keeps the fleet of a stateful service across restarts; created if missing",
    )
    parser.add_argument(
        "--stabilise",
        metavar="RULES",
        nargs="?",
        const="recommended",
        help="keep desired replicas from following every plan: by the rules of a file, or without one by the "
        "recommended rules; 'inferplan replay' shows what they do",
    )
    parser.add_argument(
        "--stale-after",
        metavar="S",
        type=float,
        help="age beyond which a plan is no longer followed (300)",
    )
    parser.add_argument(
        "--metric-alias",
        metavar="NAME",
        choices=("inferno", "wva"),
        action="append",
        help="also give desired replicas in /metrics as inferno_… or wva_desired_replicas",
    )


def _add_address(parser: argparse.ArgumentParser) -> None:
    """Add where the service listens, and whom it lets in."""
    parser.add_argument("--host", metavar="H", help="address to listen on (INFERNO_HOST, else 127.0.0.1)")
    parser.add_argument(
        "--port", metavar="P", type=int, help="port to listen on; 0: a free one (INFERNO_PORT, else 8080)"
    )
    parser.add_argument(
        "--workers", metavar="N", type=int, help="processes that answer requests; stateless only (1)"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="serve an address that other machines reach without API keys",
    )
    parser.add_argument(
        "--api-keys",
        metavar="FILE",
        type=Path,
        action="append",
        help="file of API keys, in a line 'KEY' or 'SCOPES KEY' with scopes of read,solve,write; "
        "may be given several times",
    )


def _add_routes(parser: argparse.ArgumentParser) -> None:
    """Add what single routes do."""
    parser.add_argument(
        "--unserved",
        metavar="A",
        choices=("keep", "fail", "omit"),
        help="answer of /optimizeOne and /optimize for servers that cannot be served: keep: what they run; "
        "fail: 404 for all; omit: nothing, at which the reference's actuator stops them (keep)",
    )
    parser.add_argument(
        "--queue",
        action="store_true",
        default=None,
        help="answer the queue-analysis routes at the root too, not only under /queue",
    )
    parser.add_argument(
        "--protect-state",
        action="store_true",
        default=None,
        help="do not let /optimizeOne replace the fleet of a stateful service",
    )


_SETTINGS = {
    "queue": "queue_at_root",
    "api_keys": "api_key_files",
    "stale_after": "stale_after_s",
    "metric_alias": "metric_aliases",
}
"""Arguments whose setting has another name."""


def _serve(arguments: argparse.Namespace) -> int:
    from rest_server.app import serve
    from rest_server.settings import load_settings

    names = (
        "stateful",
        "state",
        "stabilise",
        "stale_after",
        "metric_alias",
        "host",
        "port",
        "workers",
        "insecure",
        "api_keys",
        "queue",
        "protect_state",
        "unserved",
    )
    given = {_SETTINGS.get(name, name): getattr(arguments, name) for name in names}
    return serve(load_settings(**{name: value for name, value in given.items() if value is not None}))


COMMANDS = {"serve": Command(_add_serve, _serve)}
