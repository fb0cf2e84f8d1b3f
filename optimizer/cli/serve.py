"""Sub-command `serve`: runs the REST service."""

import argparse
import os

from optimizer.cli.command import Command, print_stderr
from optimizer.cli.flags import add_request
from optimizer.jobs.flag import details_of


def _add_serve(parser: argparse.ArgumentParser) -> None:
    from rest_server.settings import Settings

    fields = Settings.model_fields.items()
    add_request(parser, Settings, skipped={name for name, field in fields if details_of(field) is None})


def _serve(arguments: argparse.Namespace) -> int:
    from rest_server.app import serve
    from rest_server.settings import Settings, load_settings, unknown_variables

    for warning in unknown_variables(os.environ):
        print_stderr(f"inferplan: warning: {warning}")
    given = {name: getattr(arguments, name, None) for name in Settings.model_fields}
    return serve(load_settings(**{name: value for name, value in given.items() if value is not None}))


COMMANDS = {"serve": Command(_add_serve, _serve)}
