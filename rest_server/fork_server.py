"""The first module that the fork server imports: processes report a failed start in a line of the log.

A process that the fork server forks reads what it is to do from the service. If the service is stopped in
between, that fails, and Python would write a traceback. Import this module nowhere else.
"""

import logging
import logging.config
import sys
from types import TracebackType

from rest_server.logs import SERVICE, log_configuration

SERVICE_ENDED = (EOFError, FileNotFoundError, ConnectionError)
"""Errors of a process whose service has ended, with its pipes and semaphores."""


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, SERVICE_ENDED):
        logging.config.dictConfig(log_configuration())
        problem = "a solver process could not be started"
        logging.getLogger(SERVICE).error(problem, exc_info=(kind, error, trace))


sys.excepthook = _report
