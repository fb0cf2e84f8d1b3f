"""Logs as JSON lines on stderr: one per request, and one per other event."""

import json
import logging
import math
import time
from typing import Any

ACCESS = "inferplan.access"
"""Name of the logger for requests."""
SERVICE = "inferplan.service"
"""Name of the logger for everything else."""
FIELDS = "fields"
"""Record attribute that contains further fields of the line."""
SPARED_S = 10.0
"""Time for which further messages with the same start are omitted [s]."""
MAX_REMEMBERED = 100
"""Maximum number of message starts stored for that."""


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
    """Drops messages that start like a recent one, because asyncio floods the log if descriptors run out."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record."""
        return self.allows(record.getMessage().partition("\n")[0], record.created)

    def allows(self, text: str, now_s: float) -> bool:
        """Return whether to write a text now, and store the time if so."""
        if now_s - self._last.get(text, -math.inf) < SPARED_S:
            return False
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[text] = now_s
        return True


def log_configuration(level: str = "INFO") -> dict[str, Any]:
    """Return the configuration for `logging.config.dictConfig`, and so for uvicorn.

    Args:
        level: minimum level that is written.
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
