"""The store on PostgreSQL, where its programs and a driver are installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.model import events
from millpond.model.errors import UnavailableError
from millpond.server.store.store import LogEntry, NewJob, Snapshot, Store


def _program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


pytestmark = [
    pytest.mark.skipif(_program("initdb") is None, reason="the programs of PostgreSQL are not installed"),
    pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="the driver psycopg is not installed"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fresh database that listens on a socket in its own folder; PostgreSQL refuses to run as root."""
    folder = tmp_path_factory.mktemp("pg")
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
        ours = [path for path in folder.parents if "pytest-" in path.as_posix()]
        for path in (folder, *ours):
            path.chmod(0o755)
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def call(program: str, *arguments: str) -> None:
        command = [_program(program) or program, *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=60)

    data = folder / "data"
    call("initdb", "-D", str(data), "-A", "trust", "-U", "millpond", "--no-sync")
    call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -c listen_addresses=", "start")
    yield f"postgresql+psycopg://millpond@/postgres?host={folder}"
    call("pg_ctl", "-D", str(data), "-m", "immediate", "stop")


def test_the_store_works_on_postgresql_and_keeps_a_second_server_off(url: str) -> None:
    store = Store(url)
    store.append([LogEntry(1, events.Tick(1.0))], [NewJob("j", "ada", 1.0, {"command": "x"}, "key", "digest")])
    store.save_snapshot(Snapshot(1, 1.0, "v", {"a": 1}))
    assert [entry.event for entry in store.events_after(0)] == [events.Tick(1.0)]
    assert store.repeated("key") == ("j", "digest")
    with pytest.raises(UnavailableError, match="another server"):
        Store(url)
    store.close()
    again = Store(url)
    assert again.latest_snapshot() == Snapshot(1, 1.0, "v", {"a": 1})
    again.close()
