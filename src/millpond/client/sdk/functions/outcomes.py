"""What became of a function that ran elsewhere: its value, its exception with the traceback over there, or neither."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from millpond.job.call import RETURNED
from millpond.job.envelopes import python_version, unpack
from millpond.model.errors import MillpondError
from millpond.specs.api.jobs.jobs import JobInfo


class JobFailedError(MillpondError):
    """The job ended without a result: it was stopped, killed, or its program failed before it could say why."""


class JobTimeoutError(MillpondError, TimeoutError):
    """The job has not ended in the time that the caller gave it. It goes on."""


class RemoteExceptionError(MillpondError):
    """The function raised an exception that cannot be sent; its kind and words are the cause."""


class RemoteTracebackError(Exception):
    """The traceback of an exception, as text, from where it was raised; the cause of the exception that is raised."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


def value_of(data: bytes) -> Any:
    """What the function returned.

    Raises:
        Exception: what it raised, with the remote traceback as its cause.
        RemoteExceptionError: what it raised cannot be read here.
    """
    header, body = unpack(data)
    if header.get("outcome") == RETURNED:
        return _load(header, body)
    raised = _exception(header, body)
    raise raised from RemoteTracebackError(str(header.get("traceback", "")))


def without_result(info: JobInfo, last_lines: str) -> JobFailedError:
    """The error for a job that ended and left no result."""
    detail = "" if info.culprit is None else info.culprit.detail
    cause = f"job {info.id} {'was cancelled' if info.settled == 'cancelled' else info.settled}"
    cause += f": {detail}" if detail else ""
    return JobFailedError(cause + (f"\n{last_lines.rstrip()}" if last_lines.strip() else ""), "")


def _exception(header: dict[str, Any], body: bytes) -> BaseException:
    if body:
        with suppress(Exception):  # as where its class is of a module that is not here
            loaded = _load(header, body)
            if isinstance(loaded, BaseException):
                return loaded
    return RemoteExceptionError(f"{header.get('type')}: {header.get('message')}", "")


def _load(header: dict[str, Any], body: bytes) -> Any:
    import cloudpickle

    if header["python"] != python_version():
        raise MillpondError(
            f"the result comes from Python {header['python']}, and this is Python {python_version()}",
            "fetch it with the same version",
        )
    return cloudpickle.loads(body)
