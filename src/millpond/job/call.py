"""Run as ``python -m millpond.job.call`` in a task: calls the function that was sent along, writes what came of it.

The function comes as the job's payload (``MILLPOND_PAYLOAD``); its result, or the exception with its traceback, goes to
``MILLPOND_RESULT`` at once when it is whole. The exit code is 0 when the function returned and its result could be
written, otherwise 1.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from millpond.job.envelopes import EACH, LARGEST_RESULT, pack, python_version, unpack
from millpond.job.place import array_index
from millpond.model.errors import InvalidInputError, UnavailableError

RETURNED, RAISED = "returned", "raised"


def main() -> int:
    """Call the function; returns the exit code."""
    result = Path(os.environ["MILLPOND_RESULT"])
    try:
        function, arguments = _read(Path(os.environ["MILLPOND_PAYLOAD"]))
        outcome = _returned(function(*arguments))
        code = 0
    except Exception as error:
        traceback.print_exc()
        outcome, code = _raised(error), 1
    fresh = result.with_name(f"{result.name}.{os.getpid()}.tmp")
    try:
        fresh.write_bytes(outcome)
        fresh.replace(result)
    except OSError:
        fresh.unlink(missing_ok=True)  # half of it takes the room that a full disk lacks
        raise
    return code


def _read(payload: Path) -> tuple[Any, tuple[Any, ...]]:
    header, body = unpack(payload.read_bytes())
    if header["python"] != python_version():
        raise InvalidInputError(
            f"the function was sent from Python {header['python']}, and this is Python {python_version()} "
            f"({sys.executable})",
            "send it from the same version, or name another interpreter: submit(..., python=PATH)",
        )
    function, arguments = _pickler().loads(body)
    return function, (arguments[array_index() or 0],) if EACH in header else tuple(arguments)


def _returned(value: Any) -> bytes:
    try:
        body = _pickler().dumps(value)
    except Exception as error:
        raise InvalidInputError(
            f"the function returned a {type(value).__name__}, which cannot be sent ({error})",
            "return plain data, or write it to millpond.job.output_dir()",
        ) from error
    if len(body) > LARGEST_RESULT:
        raise InvalidInputError(
            f"the result has {len(body) / 2**20:.0f} MiB, more than the {LARGEST_RESULT // 2**20} that are sent",
            "write it to millpond.job.output_dir() and fetch it with `pond get-output`",
        )
    return pack({"outcome": RETURNED}, body)


def _raised(error: Exception) -> bytes:
    """The exception as text for anybody, and, where it can be pickled and read back, as itself."""
    text = "".join(traceback.format_exception(error))
    header = {"outcome": RAISED, "type": type(error).__name__, "message": str(error)[:10_000], "traceback": text}
    try:
        body = _pickler().dumps(error)
        _pickler().loads(body)
    except Exception:
        body = b""  # its text says everything that can be said
    return pack(header, body if len(body) <= LARGEST_RESULT else b"")


def _pickler() -> Any:
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"cloudpickle is not installed for {sys.executable}", "install millpond there: pip install millpond"
        ) from error
    return cloudpickle


if __name__ == "__main__":
    sys.exit(main())
