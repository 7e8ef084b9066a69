"""A child process that answers one question: the request is its standard input, the answer its standard output.

The child is killed when the answer is no longer wanted, or takes too long. What the question itself makes impossible
comes back as the error that it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.host.libc import PR_SET_PDEATHSIG, libc

_NICENESS: Final = 5
"""The server's own threads go first."""
_REFUSALS: Final = {kind.__name__: kind for kind in (InvalidInputError, NotFoundError, ConflictError)}


async def ask_child(module: str, request: str, within_s: float, remedy: str) -> bytes:
    """The answer of ``python -m module``, which imports nothing from where the server was started.

    Args:
        request: JSON.
        remedy: what to do where there is no answer.

    Raises:
        UnavailableError: it took too long, or the child could not be run, or has failed.
        InvalidInputError, NotFoundError, ConflictError: the child says so of the question.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"no process can be started for it ({error.strerror})", remedy) from error
    try:
        answer, _ = await asyncio.wait_for(child.communicate(request.encode()), within_s)
    except TimeoutError as error:
        raise UnavailableError(f"there was no answer within {within_s:g} s", remedy) from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise UnavailableError("no answer could be found", f"the server's log says why; {remedy}")
    if answer.startswith(b'{"refused"'):
        kind, cause, hint = json.loads(answer)["refused"]
        raise _REFUSALS[kind](cause, hint)
    return answer


def answer_parent(answer: Callable[[Any], str]) -> int:
    """The child's side: answer the one request.

    Args:
        answer: makes of the request, as plain data, the answer as JSON.
    """
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a killed server waits for no answer any more
    os.nice(_NICENESS)
    try:
        text = answer(json.load(sys.stdin))
    except MillpondError as error:
        if type(error).__name__ not in _REFUSALS:
            raise
        text = json.dumps({"refused": [type(error).__name__, error.cause, error.remedy]})
    sys.stdout.write(text)
    return 0
