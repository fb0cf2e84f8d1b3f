"""First module that the fork server imports: it makes processes report a failed start in one line of the log.

A process that the fork server forks reads its task from the service. If the service is stopped in between,
this fails, and Python would write a traceback. Do not import this module elsewhere.
"""

import logging
import logging.config
import sys
from types import TracebackType

from rest_server.logs import SERVICE, log_configuration

SERVICE_ENDED = (EOFError, FileNotFoundError, ConnectionError)
"""Errors in a process whose service has ended, so that its pipes and semaphores no longer exist."""


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, SERVICE_ENDED):
        logging.config.dictConfig(log_configuration())
        problem = "a solver process could not be started"
        logging.getLogger(SERVICE).error(problem, exc_info=(kind, error, trace))


sys.excepthook = _report
