"""The server's log as JSON lines."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from millpond.server.operations.server_log import JsonLines, LogFormat, set_up_log


def line_of(message: str, *arguments: object, error: BaseException | None = None) -> str:
    trace = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("millpond.server.runtime.loop", logging.WARNING, "f", 1, message, arguments, trace)
    record.created = 1_000.25
    return JsonLines().format(record)


def test_a_line_is_one_object_with_instant_level_and_origin() -> None:
    assert json.loads(line_of("job %s is lost", "a")) == {
        "at": "1970-01-01T00:16:40.250+00:00",
        "level": "warning",
        "logger": "millpond.server.runtime.loop",
        "message": "job a is lost",
    }


def test_nothing_that_somebody_wrote_can_begin_a_line_of_its_own() -> None:
    line = line_of("named %s", 'a\n{"level": "critical"}')
    assert "\n" not in line
    assert json.loads(line)["message"] == 'named a\n{"level": "critical"}'


def test_an_error_has_its_trace_in_the_same_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = line_of("a defect", error=sys.exc_info()[1])
    assert "ValueError: broken" in json.loads(line)["trace"]
    assert "\n" not in line


def test_what_clients_send_that_is_no_http_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("alembic", "httpx2", "uvicorn"):
        caplog.set_level(logging.NOTSET, logger=name)  # and as before at the end
    set_up_log(LogFormat.TEXT)
    server = logging.getLogger("uvicorn.error")
    server.warning("Invalid HTTP request received.")
    server.error("no more files")
    assert [record.message for record in caplog.records if record.name == server.name] == ["no more files"]
