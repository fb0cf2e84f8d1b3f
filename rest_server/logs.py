"""Logs as lines of JSON on standard error, one for every request and one for everything else that happens."""

import json
import logging
import math
import time
from typing import Any

ACCESS = "inferplan.access"
"""Name of the logger of requests."""
SERVICE = "inferplan.service"
"""Name of the logger of everything else."""
FIELDS = "fields"
"""Attribute of a record that holds further fields of its line."""
SPARED_S = 10.0
"""Time for which further messages with the same start are omitted [s]."""
MAX_REMEMBERED = 100
"""Beginnings of messages that are remembered for that."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LogThrottle(logging.Filter):
    """Leaves out what begins as a message shortly before it: out of files, asyncio would flood the log."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be written."""
        return self.allows(record.getMessage().partition("\n")[0], record.created)

    def allows(self, text: str, now_s: float) -> bool:
        """Return whether a text is to be written now, and store the time."""
        if now_s - self._last.get(text, -math.inf) < SPARED_S:
            return False
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[text] = now_s
        return True


def log_configuration(level: str = "INFO") -> dict[str, Any]:
    """Return the configuration for `logging.config.dictConfig`, and so for uvicorn.

    Args:
        level: least level that is written.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "filters": {"sparing": {"()": LogThrottle}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "json"}
        },
        "loggers": {
            name: {"handlers": ["stderr"], "level": level, "propagate": False, "filters": filters}
            for name, filters in (("inferplan", []), ("uvicorn", []), ("asyncio", ["sparing"]))
        },
    }
