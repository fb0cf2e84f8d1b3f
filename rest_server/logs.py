"""Logs of the service as JSON lines on stderr: one per request, and one per other event."""

import json
import logging
import math
import time
from typing import Any

ACCESS = "inferplan.access"
"""Name of the logger for requests."""
SERVICE = "inferplan.service"
"""Name of the logger for events other than requests."""
FIELDS = "fields"
"""Attribute of a log record that has additional fields of the line."""
SPARED_S = 10.0
"""Time for which further messages with the same start are omitted [s]."""
MAX_REMEMBERED = 100
"""Maximum number of message starts that are remembered to omit repetitions."""


class JsonFormatter(logging.Formatter):
    """Log formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line of JSON."""
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
    """Log filter that drops repeated messages, because asyncio floods the log if file descriptors run out."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record should be written."""
        return self.allows(record.getMessage().partition("\n")[0], record.created)

    def allows(self, text: str, now_s: float) -> bool:
        """Return whether a text should be written now; if so, remember the time."""
        if now_s - self._last.get(text, -math.inf) < SPARED_S:
            return False
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[text] = now_s
        return True


def log_configuration(level: str = "INFO") -> dict[str, Any]:
    """Return the logging configuration for `logging.config.dictConfig` and for uvicorn.

    Args:
        level: minimum level of messages that are written.
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
