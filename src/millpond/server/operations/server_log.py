"""The server's own log: lines for people, or one JSON object a line for programs."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from enum import Enum

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = {"alembic": logging.WARNING, "httpx2": logging.WARNING, "uvicorn": logging.ERROR}
"""The least that libraries may write. Of the HTTP server's warnings any client could make as many as it likes."""


class LogFormat(Enum):
    """What a line looks like."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One object a line: ``at`` (UTC, ISO 8601), ``level``, ``logger``, ``message``, and ``trace`` of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without line ends of its own."""
        line = {
            "at": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_log(form: LogFormat) -> None:
    """Have everything from ``info`` on written to standard error; of libraries less."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)
