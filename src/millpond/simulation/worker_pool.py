"""Processes that play for this one, and end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Final

from millpond.model.errors import UnavailableError

_SAFE_PATH: Final = "PYTHONSAFEPATH"


@contextmanager
def worker_pool(workers: int, begin: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """So many processes; each calls ``begin`` with what is given before its first task. An error ends them at once.

    They run no module of the present folder, such as a ``types.py`` there, as ``pond`` does not.

    Raises:
        UnavailableError: one of them died.
    """
    with _safe_path():
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker, (begin, *given))
        try:
            yield pool
        except BrokenProcessPool as error:
            raise UnavailableError(
                "a worker process died", "use fewer --workers, or give the machine more memory"
            ) from error
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _safe_path() -> Iterator[None]:
    """What is started meanwhile has no present folder in its path, though this process was begun without ``-P``."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _begin_worker(begin: Callable[..., None] | None, *given: Any) -> None:
    """Ctrl-C reaches every process of the terminal; the workers leave the talking to their parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if begin is not None:
        begin(*given)
