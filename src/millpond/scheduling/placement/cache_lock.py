"""The cache on disk of compiled kernels, which all processes of an account share, is read and written under a lock.

numba reads its index of a kernel's signatures, adds one and writes it back, with no lock of its own: of two processes
that save different signatures of one kernel at the same moment, one could find the other's code under its own
signature, now and whenever it starts again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

_Dispatcher = TypeVar("_Dispatcher")

LOCK_FILE = "lock"


class LockedCacheFile:
    """One kernel's part of the cache, as numba uses it (``numba.core.caching.IndexDataCacheFile``)."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def save(self, key: Any, data: Any) -> None:
        """Keep what was compiled for a signature."""
        with self._locked(fcntl.LOCK_EX):
            self._file.save(key, data)

    def load(self, key: Any) -> Any:
        """What was compiled for a signature; None when that is not here."""
        with self._locked(fcntl.LOCK_SH):
            return self._file.load(key)

    def flush(self) -> None:
        """Forget all signatures."""
        with self._locked(fcntl.LOCK_EX):
            self._file.flush()

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Where there is no folder yet, or its file system knows no locks, it goes without."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                lock = os.open(Path(self._file._cache_path, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                held.callback(os.close, lock)
                fcntl.flock(lock, how)
            yield


def locked(dispatcher: _Dispatcher) -> _Dispatcher:
    """The same compiled function, with its cache under the lock; one without a cache as it is."""
    cache: Any = getattr(dispatcher, "_cache", None)
    if hasattr(cache, "_cache_file"):
        cache._cache_file = LockedCacheFile(cache._cache_file)
    return dispatcher
