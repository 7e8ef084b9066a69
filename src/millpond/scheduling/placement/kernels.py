"""One source, two speeds: the switch between interpreted and compiled kernels.

A kernel is a plain Python function over numpy arrays, marked with ``@kernel``. ``interpreted()`` returns the
functions as they are; ``compiled()`` imports numba and returns copies of the same code whose calls to other
kernels go to compiled kernels too. Nothing else changes, and there is no fast-math: scores are integers, and where
floats are compared both do the same operations in the same order. So both return identical results, and a server may
start interpreted and swap when the compiler is done.

numba's own cache does not notice when a kernel or a constant in another file changes, so the compiled code is kept in
a directory named after a digest of all kernel sources and of the constants they read.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from millpond.compilation.sources import cache_root
from millpond.scheduling.placement.cache_lock import locked

log = logging.getLogger(__name__)

Kernel = Callable[..., Any]
K = TypeVar("K", bound=Kernel)

_registry: dict[str, FunctionType] = {}
_lean: set[str] = set()
_compiled: list[KernelSet] = []
_compiling = threading.Lock()


class KernelSet:
    """Kernels by name: ``kernels.call("select_best")`` gives the callable."""

    __slots__ = ("_functions", "is_compiled")

    def __init__(self, functions: dict[str, Kernel], *, is_compiled: bool) -> None:
        self._functions = functions
        self.is_compiled = is_compiled

    def __len__(self) -> int:
        return len(self._functions)

    def call(self, name: str) -> Kernel:
        """The kernel of that name; KeyError if no module registered one."""
        return self._functions[name]


def kernel(function: K) -> K:
    """Register ``function`` as a kernel and return it unchanged."""
    plain = cast(FunctionType, function)
    if _registry.setdefault(plain.__name__, plain).__code__.co_filename != plain.__code__.co_filename:
        raise ValueError(f"two kernels are named {plain.__name__}")
    return function


def lean_kernel(function: K) -> K:
    """As ``kernel``, for a kernel that allocates nothing and takes no views of its arrays.

    It is compiled without reference counting, which otherwise costs more than the arithmetic of a small kernel.
    """
    _lean.add(cast(FunctionType, function).__name__)
    return kernel(function)


def interpreted() -> KernelSet:
    """The kernels as plain Python functions."""
    return KernelSet(dict(_registry), is_compiled=False)


def compiled() -> KernelSet:
    """The kernels wrapped by numba.

    Each is compiled on its first call, or loaded from the cache on disk. Safe to call from any thread.

    Raises:
        ImportError: numba is not installed, or switched off by NUMBA_DISABLE_JIT.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "") not in ("", "0"):
        raise ImportError("numba is switched off by NUMBA_DISABLE_JIT")
    with _compiling:
        if not _compiled or len(_compiled[-1]) != len(_registry):
            _compiled.append(_wrap(dict(_registry)))
        return _compiled[-1]


def fastest() -> KernelSet:
    """The compiled kernels; the interpreted ones where there is no compiler."""
    try:
        return compiled()
    except ImportError:
        return interpreted()


def _wrap(functions: dict[str, FunctionType]) -> KernelSet:
    import numba

    scopes: dict[str, dict[str, Any]] = {name: dict(plain.__globals__) for name, plain in functions.items()}
    config: Any = numba.config
    njit: Any = numba.njit
    previous = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_directory(functions, numba.__version__))
    try:
        wrapped: dict[int, Kernel] = {}
        for name, plain in functions.items():
            twin = FunctionType(plain.__code__, scopes[name], plain.__name__, plain.__defaults__)
            twin.__module__, twin.__qualname__ = plain.__module__, plain.__qualname__
            # "_nrt" is the switch of numba's reference counting.
            lean = {"_nrt": False} if name in _lean else {}
            wrapped[id(plain)] = locked(njit(cache=True, nogil=True, **lean)(twin))
    finally:
        config.CACHE_DIR = previous
    for scope in scopes.values():
        scope.update({name: wrapped[id(value)] for name, value in scope.items() if id(value) in wrapped})
    return KernelSet({name: wrapped[id(plain)] for name, plain in functions.items()}, is_compiled=True)


def _cache_directory(functions: dict[str, FunctionType], numba_version: str) -> Path:
    digest = hashlib.sha256(numba_version.encode())
    for path in sorted({plain.__code__.co_filename for plain in functions.values()}):
        digest.update(Path(path).read_bytes())
    for name, plain in sorted(functions.items()):
        values = [(used, plain.__globals__.get(used)) for used in plain.__code__.co_names]
        digest.update(repr([name, *((used, value) for used, value in values if isinstance(value, int))]).encode())
    directory = cache_root() / f"kernels-{digest.hexdigest()[:16]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
        trouble = os.strerror(errno.EACCES)
    except OSError as error:
        trouble = error.strerror or str(error)
    # A cache holds code, so one that cannot be written is replaced by a private one, never by a shared one.
    private = Path(tempfile.mkdtemp(prefix="millpond-kernels-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    log.warning(
        "compiled kernels cannot be kept in %s (%s): each process takes a minute to compile them; "
        "have XDG_CACHE_HOME name a folder that can be written",
        directory,
        trouble,
    )
    return private
