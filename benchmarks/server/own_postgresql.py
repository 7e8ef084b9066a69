"""A PostgreSQL of one's own for as long as it is needed, from the programs that are installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def what_is_missing() -> str:
    """Why there can be none here; empty when there can."""
    if _program("initdb") is None:
        return "the programs of PostgreSQL are not installed"
    if importlib.util.find_spec("psycopg") is None:
        return "the driver psycopg is not installed"
    return ""


@contextlib.contextmanager
def own_postgresql(*, waits_for_disk: bool = True) -> Iterator[str]:
    """The URL of an empty database that listens on a socket in its own folder; PostgreSQL refuses to run as root.

    Args:
        waits_for_disk: whether what is committed outlives a loss of power.
    """
    # Not below pytest's own folder, which every other run of pytest closes to all accounts but its own again.
    folder = Path(tempfile.mkdtemp(prefix="millpond-pg-"))
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def call(program: str, *arguments: str) -> None:
        command = [_program(program) or program, *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=600)

    data = folder / "data"
    call("initdb", "-D", str(data), "-A", "trust", "-U", "millpond", "-E", "UTF8", "--locale", "C", "--no-sync")
    call(
        "pg_ctl",
        "-D",
        str(data),
        "-w",
        "-t",
        "300",
        "-l",
        str(folder / "log"),
        "-o",
        f"-k {folder} -c listen_addresses= -c fsync={'on' if waits_for_disk else 'off'}",
        "start",
    )
    try:
        yield f"postgresql+psycopg://millpond@/postgres?host={folder}"
    finally:
        call("pg_ctl", "-D", str(data), "-t", "300", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)
