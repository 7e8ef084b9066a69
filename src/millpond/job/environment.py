"""Makes the environment of a template on the machine where its jobs run: once, and kept.

Sent along with the job that makes it, and run there as ``python3 -c TEXT FOLDER PACKAGE...``, by whatever Python 3 the
machine has; so it imports nothing but the standard library. The folder is relative to the home of the user who runs it.
"""

from __future__ import annotations

import collections
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

WHOLE = "complete"
"""A file in the folder, which is there when all packages are."""

_UNREACHED = (
    "Failed to establish a new connection",
    "NewConnectionError",
    "ConnectTimeoutError",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "ReadTimeoutError",
    "Connection aborted",
    "Connection broken",
    "Max retries exceeded",
    "ProxyError",
)
_LINES_KEPT = 500
_QUIETLY = ("--disable-pip-version-check", "--progress-bar", "off")


def main(folder: str, packages: list[str]) -> int:
    """Make the environment, if it is not there; returns the exit code."""
    place = Path.home() / folder
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making it: it is there afterwards
            if _is_whole(place):
                print(f"the environment is there: {place}")
                return 0
            shutil.rmtree(place, ignore_errors=True)
            trouble = _make(place, packages)
    except OSError as error:
        trouble = f"{error.filename or place}: {error.strerror}; an environment needs a home that can be written"
    if trouble:
        print(f"no environment: {trouble}", file=sys.stderr, flush=True)
        return 1
    print(f"the environment is made: {place}")
    return 0


def _is_whole(place: Path) -> bool:
    """Whether it was completed, and its Python still runs: the machine's may have been replaced."""
    if not (place / WHOLE).exists():
        return False
    return subprocess.run([place / "bin" / "python", "-c", ""], capture_output=True, check=False).returncode == 0


def _make(place: Path, packages: list[str]) -> str:
    """Make it; returns what stands in the way, and what would help."""
    print(f"making {place} with {' '.join(packages)}", flush=True)
    if subprocess.run([sys.executable, "-m", "venv", str(place)], check=False).returncode != 0:
        return f"{sys.executable} cannot make one; install venv there (Debian: apt install python3-venv)"
    command = [str(place / "bin" / "python"), "-m", "pip", "install", *_QUIETLY, "--retries", "2", *packages]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    last = collections.deque[str](maxlen=_LINES_KEPT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as pip:
        for line in pip.stdout or ():
            print(line, end="", flush=True)
            last.append(line)
    if pip.returncode == 0:
        (place / WHOLE).touch()
        return ""
    said = "".join(last)
    if any(sign in said for sign in _UNREACHED):
        return (
            "the package index cannot be reached from this machine; have an admin name a mirror in its /etc/pip.conf, "
            "or install the programs there, where the PATH of jobs finds them"
        )
    return f"pip could not install {' '.join(packages)}; its words stand above"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
