"""The sub-commands: for each its arguments, and what it does with them.

Imports are made where they are used, so that help answers at once.
"""

from optimizer.commands import bench, comparing, documents, explaining, planning, replicas, reporting, serve

COMMANDS = (
    planning.COMMANDS
    | comparing.COMMANDS
    | explaining.COMMANDS
    | reporting.COMMANDS
    | replicas.COMMANDS
    | documents.COMMANDS
    | bench.COMMANDS
    | serve.COMMANDS
)

__all__ = ["COMMANDS"]
