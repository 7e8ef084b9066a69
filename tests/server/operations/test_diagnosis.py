"""What the check of a machine says about machines that lack something."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fresh_databases import fresh_postgresql, fresh_sqlite

from millpond.client.cli.main import cli
from millpond.model.errors import UnavailableError
from millpond.node.containers.detection import RuntimeChoice, find_containers
from millpond.node.sandbox.sandbox import Sandbox
from millpond.server.auth import isolation
from millpond.server.operations import diagnosis
from millpond.server.operations.diagnosis import diagnose
from millpond.server.operations.findings import Grade
from millpond.server.startup.options import ServerOptions, remember
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.store.store import Store
from millpond.specs.api.server import HealthInfo


@pytest.fixture(scope="module")
def _containers(tmp_path_factory):
    """What runs containers on this machine."""
    try:
        return find_containers(RuntimeChoice.AUTO, tmp_path_factory.mktemp("state"))
    except UnavailableError as error:
        return error


@pytest.fixture(autouse=True)
def _containers_start(monkeypatch, _containers):
    """Whether they do is asked for once, which takes a second, as to run one does; tests of that say so."""

    def find(choice, state_dir):
        if isinstance(_containers, UnavailableError):
            raise _containers
        return _containers

    monkeypatch.setattr(diagnosis, "find_containers", find)
    monkeypatch.setattr(diagnosis, "trouble_with_start", lambda found: "")


def finding(what: str, state_dir: Path):
    (found,) = (one for one in diagnose(state_dir) if one.what == what)
    return found


def test_whatever_is_not_ok_comes_with_a_remedy(tmp_path):
    findings = diagnose(tmp_path)
    assert all(one.found for one in findings)
    assert all((one.grade is Grade.OK) == (not one.remedy) for one in findings)


def test_a_kernel_that_is_too_old_breaks_everything(tmp_path, monkeypatch):
    def refuse() -> None:
        raise UnavailableError("this kernel has no pidfd_open", "run the server on Linux 5.3 or newer")

    monkeypatch.setattr(diagnosis.runner, "require_pidfd", refuse)
    assert finding("kernel", tmp_path).grade is Grade.BROKEN


def test_a_state_directory_below_a_file_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    assert finding("state directory", tmp_path / "file" / "state").grade is Grade.BROKEN


def test_a_state_directory_that_we_may_not_look_into_is_said_to_be_another_accounts(tmp_path, monkeypatch):
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    last = diagnose(tmp_path / "state")[-1]
    assert (last.what, last.grade) == ("state directory", Grade.BROKEN)
    assert last.found == f"{tmp_path / 'state'} is another account's"


def test_a_file_in_place_of_the_state_directory_is_not_said_to_be_another_accounts(tmp_path):
    (tmp_path / "file").write_text("")
    found = finding("state directory", tmp_path / "file")
    assert found.found == f"{tmp_path / 'file'} cannot be written (Not a directory)"


def test_a_file_system_that_the_kernel_lets_nobody_write_any_more_is_named_as_the_cause(tmp_path, monkeypatch):
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(diagnosis.tempfile, "TemporaryFile", refuse)
    found = finding("state directory", tmp_path)
    assert (found.grade, found.found) == (Grade.BROKEN, f"{tmp_path} cannot be written (Read-only file system)")


def test_a_state_directory_open_to_others_is_told(tmp_path):
    tmp_path.chmod(0o755)
    found = finding("state directory", tmp_path)
    assert (found.grade, found.remedy) == (Grade.LIMITED, f"chmod 700 {tmp_path}")


def test_a_state_directory_on_a_network_file_system_is_told(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(diagnosis, "_filesystem_of", lambda path: "nfs4")
    found = finding("state directory", tmp_path)
    assert found.grade is Grade.LIMITED
    assert "--store" in found.remedy


def test_a_state_that_this_version_cannot_go_on_from_is_broken_and_one_that_it_can_is_not(tmp_path):
    database = tmp_path / DATABASE_FILE
    fresh_sqlite(tmp_path)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert finding("stored state", tmp_path).grade is Grade.OK
        snapshot = (1, 0.0, "0.0.9", json.dumps({"scheduler": {"format": 1}}))
        connection.execute("INSERT INTO snapshots (seq, at, version, data) VALUES (?, ?, ?, ?)", snapshot)
        connection.commit()
    found = finding("stored state", tmp_path)
    assert found.grade is Grade.BROKEN
    assert found.found.startswith("the scheduler's state is of format 1, by Millpond 0.0.9")
    assert "under the version that wrote it" in found.remedy
    assert [each.name for each in tmp_path.iterdir()] == [DATABASE_FILE]


def test_state_in_postgresql_is_looked_at_where_the_last_start_kept_it(tmp_path, postgresql_url):
    url = fresh_postgresql(postgresql_url)
    remember(ServerOptions(tmp_path, store=url))

    def found() -> str:
        said = CliRunner().invoke(cli, ["doctor", "--state-dir", str(tmp_path), "-o", "json"]).output
        return next(each["found"] for each in json.loads(said) if each["what"] == "stored state")

    assert "in PostgreSQL; this version goes on from it" in found()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'of_tomorrow'"))
    engine.dispose()
    assert "which this version does not know" in found()
    remember(ServerOptions(tmp_path, store="postgresql+psycopg://nobody@127.0.0.1:1/none"))
    assert "connection" in found()


def test_a_damaged_database_is_broken(tmp_path):
    (tmp_path / DATABASE_FILE).write_bytes(b"no database" * 100)
    found = finding("stored state", tmp_path)
    assert found.grade is Grade.BROKEN
    assert "file is not a database" in found.found
    assert "pond restore" in found.remedy


def test_a_full_disk_is_broken_and_what_the_database_keeps_for_ends_is_told(tmp_path, monkeypatch):
    store = Store(fresh_sqlite(tmp_path))
    store.reserve.refill()
    monkeypatch.setattr(diagnosis.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    found = finding("disk", tmp_path)
    assert found.grade is Grade.BROKEN
    assert "4.0 MiB within the database, kept for stops and ends" in found.found
    store.close()
    assert finding("disk", tmp_path).found == "0.0 GiB free beside the state"


def test_a_disk_without_room_for_more_files_is_broken_however_many_bytes_are_free(tmp_path, monkeypatch):
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(diagnosis.shutil, "disk_usage", lambda path: SimpleNamespace(free=8 * 2**30))
    monkeypatch.setattr(diagnosis, "free_files", lambda path: 999)
    monkeypatch.setattr(diagnosis.tempfile, "TemporaryFile", refuse)
    found = finding("disk", tmp_path)
    assert (found.grade, found.found) == (Grade.BROKEN, "8.0 GiB free beside the state, with room for 999 more files")
    assert finding("state directory", tmp_path).grade is not Grade.BROKEN, "the remedy is room, not another place"


def test_the_file_system_is_that_of_the_nearest_mount_point(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"root / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nother {tmp_path}-2 cifs rw 0 0\n")
    assert diagnosis._filesystem_of(tmp_path / "state", mounts) == "nfs4"
    assert diagnosis._filesystem_of(Path("/usr"), mounts) == "ext4"


@pytest.mark.parametrize(("trouble", "grade"), [("", Grade.OK), ("no bubblewrap", Grade.LIMITED)])
def test_a_server_that_is_not_root_is_told_what_a_second_person_gets(tmp_path, monkeypatch, trouble, grade):
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 1000)
    sandbox = None if trouble else Sandbox("bwrap", ())
    monkeypatch.setattr(diagnosis, "find_sandbox", lambda mode, hidden: (sandbox, trouble))
    found = finding("whom jobs run as", tmp_path)
    assert found.grade is grade
    assert ("nothing new starts" if trouble else "a home of their own") in found.found


def test_a_server_that_is_root_is_told_what_closes_its_state_directory_to_the_jobs_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 0)
    monkeypatch.setattr(diagnosis, "find_sandbox", lambda mode, hidden: (Sandbox("bwrap", ()), ""))
    monkeypatch.setattr(diagnosis, "trouble_with_identities", lambda sandbox: "")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(isolation, "private_directories", lambda: (closed,))
    assert finding("whom jobs run as", closed / "state").grade is Grade.OK
    monkeypatch.setattr(isolation, "private_directories", lambda: ())
    found = finding("whom jobs run as", closed / "state")
    assert found.grade is Grade.LIMITED
    assert "above the state directory: their jobs fail" in found.found
    assert found.remedy.startswith("chmod o+x /")


def test_a_runtime_that_starts_no_container_is_told_with_what_it_says(tmp_path, monkeypatch):
    found = SimpleNamespace(version="podman 4.3.1", runtime=SimpleNamespace(name="podman"), card_trouble="")
    monkeypatch.setattr(diagnosis, "find_containers", lambda choice, state_dir: found)
    assert finding("containers", tmp_path).grade is Grade.OK
    monkeypatch.setattr(diagnosis, "trouble_with_start", lambda found: "error setting rlimits")
    told = finding("containers", tmp_path)
    assert told.grade is Grade.LIMITED
    assert "podman 4.3.1 starts no container (error setting rlimits)" in told.found


def test_too_few_open_files_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "prlimit", lambda pid, which: (256, 512))
    assert finding("open files", tmp_path).grade is Grade.LIMITED


@contextlib.contextmanager
def running_server(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that counts as the server of a state directory."""
    queries = ["sh", "-c", "echo up; read line", "millpond.server"]
    with subprocess.Popen(queries, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"  # before that the kernel may not know its command line yet
        left = {"url": "http://127.0.0.1:7433", "pid": server.pid, "token_path": "", "version": ""}
        (state_dir / "server.json").write_text(json.dumps(left))
        yield server
        server.communicate(b"")


def test_where_a_server_runs_its_limits_count_and_not_those_of_the_shell(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnosis, "ask_health", lambda left, within_s: HealthInfo(status="ready"))
    with running_server(tmp_path) as server:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (300, 300))
        assert finding("open files", tmp_path).found == "300 (at most 300)"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert finding("open files", tmp_path).found.split()[0] in (str(most), "no"), "a server here would raise its own"


@pytest.mark.parametrize(
    ("health", "grade", "found"),
    [
        (HealthInfo(status="ready"), Grade.OK, "takes requests at http://127.0.0.1:7433"),
        (HealthInfo(status="degraded", degraded="the clock was set back"), Grade.LIMITED, "the clock was set back"),
        (HealthInfo(status="the store does not answer"), Grade.BROKEN, "the store does not answer"),
        (None, Grade.BROKEN, "process {pid} does not answer at http://127.0.0.1:7433"),
    ],
)
def test_what_ails_a_server_that_runs_is_said_in_its_own_words(tmp_path, monkeypatch, health, grade, found):
    monkeypatch.setattr(diagnosis, "ask_health", lambda left, within_s: health)
    with running_server(tmp_path) as server:
        said = finding("server", tmp_path)
    assert (said.grade, said.found) == (grade, found.format(pid=server.pid))
    assert bool(said.remedy) == (grade is not Grade.OK)


def test_a_server_that_ended_is_not_asked_how_it_is(tmp_path):
    with running_server(tmp_path):
        pass
    assert all(one.what != "server" for one in diagnose(tmp_path))


@pytest.mark.parametrize("what", ["GPUs", "sandbox", "compiled kernels", "PostgreSQL driver", "memory", "disk"])
def test_nothing_that_is_merely_useful_keeps_a_server_from_running(tmp_path, what):
    assert finding(what, tmp_path).grade is not Grade.BROKEN
