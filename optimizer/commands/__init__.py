"""The sub-commands: for each its arguments, and what it does with them.

Imports are made where they are used, so that help answers at once.
"""

from optimizer.commands import bench, documents, planning, replicas, studies

COMMANDS = planning.COMMANDS | studies.COMMANDS | replicas.COMMANDS | documents.COMMANDS | bench.COMMANDS

__all__ = ["COMMANDS"]
