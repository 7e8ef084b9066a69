"""Compiles the scheduler: a copy of its sources is translated by mypyc and built by the C compiler, in a process and a
folder of its own, and put in its place at once when all is there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from millpond.compilation.sources import NAME, ROOT, folder, modules, sources
from millpond.model.errors import UnavailableError

OPTIMIZATION: Final = "1"
"""Of the C compiler. More takes three times as long to compile and is hardly faster."""

_SCRATCH: Final = "compiling-"
_LOCK: Final = "lock"
"""Name of the file in a scratch folder that all processes at work in it have locked."""

_LONGEST_S: Final = 86_400
"""No compilation takes so long."""

_SETUP: Final = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

name, level, parallel, target, scratch, modules = json.load(sys.stdin)

class Build(build_ext):
    def build_extension(self, ext):
        def compile(source):
            return self.compiler.compile(
                [source], self.build_temp, include_dirs=ext.include_dirs, extra_postargs=ext.extra_compile_args
            )
        with ThreadPoolExecutor(parallel) as pool:
            ext.extra_objects = [made for objects in pool.map(compile, ext.sources) for made in objects]
        ext.sources = []
        super().build_extension(ext)

options = ["--config-file=", "--ignore-missing-imports", "--allow-untyped-decorators", "--no-warn-unused-ignores"]
paths = {"target_dir": scratch, "group_name": name}
built = mypycify([*options, *modules], opt_level=level, debug_level="0", multi_file=True, **paths)
args = ["-q", "build_ext", "--build-lib", target, "--build-temp", scratch]
setup(name=name, ext_modules=built, script_args=args, cmdclass={"build_ext": Build})
"""
"""Each module is a file of C: one file with all of them takes four times as long. As many are compiled at once as there
are processors."""


def build() -> Path:
    """Compile the scheduler, unless that was done before; returns the folder of the result. Takes some minutes.

    Raises:
        UnavailableError: something that it takes is missing, or it failed.
    """
    target = folder()
    if target.is_dir():
        return target
    _require_tools()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _drop_abandoned(target.parent)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as name, _locked(Path(name)) as lock:
            _build_in(Path(name), target, lock)
    except OSError as error:
        raise UnavailableError(f"{target.parent}: {error.strerror}", "set XDG_CACHE_HOME to another folder") from error
    return target


def _drop_abandoned(cache: Path) -> None:
    """Remove what compilations that were killed have left behind."""
    for scratch in cache.glob(f"{_SCRATCH}*"):
        if _is_abandoned(scratch):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_abandoned(scratch: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, BlockingIOError, PermissionError):  # the last: it is another account's
        try:
            with (scratch / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except FileNotFoundError:  # it is about to be locked, or was left in that moment
            return time.time() - scratch.stat().st_mtime > _LONGEST_S
    return False


@contextlib.contextmanager
def _locked(scratch: Path) -> Iterator[int]:
    """The descriptor of the lock, which holds as long as any process has it open."""
    with (scratch / f"{_LOCK}.new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(scratch / _LOCK)  # under its name it is never seen unlocked
        yield lock.fileno()


def _build_in(scratch: Path, target: Path, lock: int) -> None:
    copied, made = scratch / "sources", scratch / "made"
    for source in sources():
        copy = copied / source.relative_to(ROOT.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    names = [path.as_posix() for path in modules()]
    request = [NAME, OPTIMIZATION, os.cpu_count(), str(made), str(scratch / "scratch"), names]
    done = subprocess.run(
        [sys.executable, "-c", _SETUP],
        input=json.dumps(request),
        cwd=copied,
        env={**os.environ, "MYPYPATH": str(copied), "CFLAGS": "-w"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=[lock],  # the compiler goes on where this process is killed
    )
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-20:])
        raise UnavailableError(f"the scheduler could not be compiled:\n{said}", "it runs as well without, but slower")
    made.chmod(0o755)
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():  # else another one was faster
            raise


def _require_tools() -> None:
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    missing = {
        "mypyc": (find_spec("mypyc") is not None, "pip install 'millpond[compile]'"),
        "setuptools": (find_spec("setuptools") is not None, "pip install 'millpond[compile]'"),
        f"a C compiler ({compiler})": (shutil.which(compiler) is not None, "install it: on Debian, apt install gcc"),
        f"the headers of Python ({header})": (header.exists(), "install them: on Debian, apt install python3-dev"),
    }
    for what, (is_there, remedy) in missing.items():
        if not is_there:
            raise UnavailableError(f"compiling the scheduler takes {what}", remedy)
