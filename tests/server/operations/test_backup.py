"""Backups: what is in them, that a running writer does not tear them, and that a damaged one restores nothing."""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import signal
import sqlite3
import stat
import tarfile
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from millpond.client.cli.main import cli
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.keys import KeySource
from millpond.server.operations import backup
from millpond.server.operations.backup import MANIFEST, Lock, back_up, needed_key_of, restore
from nested_folders import nested


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a database that somebody holds open and writes, as a running server does."""
    directory = tmp_path / "state"
    log = directory / "jobs" / "train-abcde" / "attempt-1" / "task-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1\n")
    (directory / "token").write_text("secret\n")
    (directory / "server.json").write_text("{}")
    (directory / "lock").write_text("1\n")
    return directory


@pytest.fixture
def database(state: Path):
    connection = sqlite3.connect(state / "millpond.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE jobs (id TEXT)")
    connection.execute("INSERT INTO jobs VALUES ('train-abcde')")
    connection.commit()
    yield connection
    connection.close()


def rows(directory: Path) -> list[str]:
    connection = sqlite3.connect(directory / "millpond.db")
    try:
        return [row[0] for row in connection.execute("SELECT id FROM jobs")]
    finally:
        connection.close()


def test_what_was_committed_comes_back_although_the_database_is_in_use(state, database, tmp_path):
    database.execute("INSERT INTO jobs VALUES ('not-committed')")
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    assert rows(tmp_path / "fresh") == ["train-abcde"]


def test_a_server_that_writes_all_the_time_does_not_keep_a_backup_from_its_end(state, database, tmp_path, monkeypatch):
    database.execute("INSERT INTO jobs VALUES (zeroblob(20000000))")
    database.commit()
    left = []

    class Written(sqlite3.Connection):
        """A database in which the server commits something after each step of the copy, for a while."""

        def backup(self, target: sqlite3.Connection, **how: float) -> None:
            super().backup(target, progress=self._write, **how)

        def _write(self, _status: int, pages_left: int, _pages: int) -> None:
            left.append(pages_left)
            if len(left) < 20:
                database.execute("INSERT INTO jobs VALUES ('later')")
                database.commit()

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Written))

    back_up(state, tmp_path / "b.tar.gz", 1000.0)

    assert len(left) > 1
    assert left == sorted(set(left), reverse=True)


def test_the_database_of_a_folder_with_signs_of_urls_is_the_one_that_comes_back(state, database, tmp_path):
    database.close()
    odd = state.rename(tmp_path / "jobs #2? 100%41")
    back_up(odd, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    assert rows(tmp_path / "fresh") == ["train-abcde"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "fresh", odd.name]


def test_a_database_that_cannot_be_read_is_named_and_not_the_backup(state, tmp_path):
    (state / "millpond.db").write_bytes(b"no database " * 100)
    with pytest.raises(UnavailableError, match=r"the database .*millpond\.db cannot be read .*not a database"):
        back_up(state, tmp_path / "b.tar.gz", 1000.0)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_output_and_token_come_back_and_what_belongs_to_the_running_server_does_not(state, database, tmp_path):
    summary = back_up(state, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    fresh = {str(path.relative_to(tmp_path / "fresh")) for path in (tmp_path / "fresh").rglob("*") if path.is_file()}
    assert fresh == {"millpond.db", "token", "jobs/train-abcde/attempt-1/task-0.log"}
    assert summary.files == 3


def test_without_jobs_only_database_and_token_are_kept(state, database, tmp_path):
    back_up(state, tmp_path / "b.tar.gz", 1000.0, jobs=False)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    assert sorted(path.name for path in (tmp_path / "fresh").iterdir()) == ["millpond.db", "token"]


def test_only_its_owner_reads_a_backup_and_what_is_restored(state, database, tmp_path):
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    assert stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o700


def test_a_backup_is_never_overwritten(state, database, tmp_path):
    (tmp_path / "b.tar.gz").write_text("precious")
    with pytest.raises(ConflictError, match="exists already"):
        back_up(state, tmp_path / "b.tar.gz", 1000.0)
    assert (tmp_path / "b.tar.gz").read_text() == "precious"


def test_what_killed_processes_left_of_backups_and_restores_goes_with_the_next(state, database, tmp_path):
    target, restored = tmp_path / "pond.tar.gz", tmp_path / "restored"
    dead = 2**22 + 1  # no process has such a number
    left = [tmp_path / f"pond.tar.gz.{dead}.partial", tmp_path / f"pond.tar.gz.{dead}.db"]
    kept = [tmp_path / f"pond.tar.gz.{os.getppid()}.partial", tmp_path / f"other.{dead}.partial"]
    for path in (*left, *kept):
        path.touch()
    (tmp_path / f"restored.{dead}.restoring" / "jobs").mkdir(parents=True)
    back_up(state, target, 1.0)
    restore(target, restored)
    assert {path.name for path in tmp_path.iterdir()} == {state.name, target.name, "restored", *(p.name for p in kept)}


def test_a_backup_that_finds_too_little_room_leaves_nothing_of_it(state, database, tmp_path):
    database.executemany("INSERT INTO jobs VALUES (?)", [("long" * 1_000,)] * 500)
    database.commit()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(UnavailableError, match="cannot be written"):
            back_up(state, tmp_path / "pond.tar.gz", 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_directory_without_a_database_is_no_state_directory(tmp_path):
    with pytest.raises(UnavailableError, match=r"no millpond\.db") as raised:
        back_up(tmp_path, tmp_path / "b.tar.gz", 1000.0)
    assert "pg_dump" in raised.value.remedy


def test_nothing_is_restored_over_something(state, database, tmp_path):
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    with pytest.raises(ConflictError, match="not empty"):
        restore(tmp_path / "b.tar.gz", state)
    assert rows(state) == ["train-abcde"]


def damaged(source: Path, target: Path, name: str) -> None:
    """The same archive with other bytes in one member, as a disk might give them back."""
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for member in old.getmembers():
            body = old.extractfile(member)
            assert body is not None
            data = body.read()
            if member.name == name:
                data = bytes([data[0] ^ 1]) + data[1:]
            new.addfile(member, io.BytesIO(data))


def test_a_damaged_file_is_named_and_nothing_is_restored(state, database, tmp_path):
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    damaged(tmp_path / "b.tar.gz", tmp_path / "bad.tar.gz", "token")
    with pytest.raises(InvalidInputError, match="token is missing or damaged"):
        restore(tmp_path / "bad.tar.gz", tmp_path / "fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "bad.tar.gz", "state"]


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_backup_that_was_cut_short_restores_nothing(state, database, tmp_path, kept):
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    whole = (tmp_path / "b.tar.gz").read_bytes()
    (tmp_path / "short.tar.gz").write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(InvalidInputError):
        restore(tmp_path / "short.tar.gz", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_another_archive_is_no_backup(tmp_path):
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as other:
        other.addfile(tarfile.TarInfo("readme"), io.BytesIO())
    with pytest.raises(InvalidInputError, match="not a whole backup"):
        restore(tmp_path / "other.tar.gz", tmp_path / "fresh")


def test_no_job_keeps_a_backup_from_being_made(state, database, tmp_path, monkeypatch):
    folder = state / "jobs" / "train-abcde" / "attempt-1"
    (folder / "shallow").mkdir()
    cut = folder / "shallow" / "cut"
    cut.write_bytes(b"0123456789")
    described = tarfile.TarFile.gettarinfo

    def described_and_cut(self, *args, **kwargs):
        found = described(self, *args, **kwargs)
        if found.name.endswith("cut"):
            os.truncate(cut, 4)
        return found

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", described_and_cut)
    with nested(folder / "deep", 2_500):
        assert back_up(state, tmp_path / "b.tar.gz", 1000.0).left_out == 1
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    fresh = tmp_path / "fresh" / "jobs" / "train-abcde" / "attempt-1"
    assert (fresh / "shallow" / "cut").read_bytes() == b"0123" + bytes(6)


def test_a_pipe_or_a_link_that_takes_the_place_of_a_file_meanwhile_is_not_backed_up(
    state, database, tmp_path, monkeypatch
):
    folder = state / "jobs" / "train-abcde" / "attempt-1"
    for name in ("pipe", "link"):
        (folder / name).write_text("output")
    (tmp_path / "secret").write_text("secret")
    listed = backup._files

    def meddle(state_dir):
        found = list(listed(state_dir))
        for name in ("pipe", "link"):
            (folder / name).unlink()
        os.mkfifo(folder / "pipe")
        (folder / "link").symlink_to(tmp_path / "secret")
        return found

    monkeypatch.setattr(backup, "_files", meddle)
    assert back_up(state, tmp_path / "b.tar.gz", 1000.0).left_out == 2
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    fresh = tmp_path / "fresh" / "jobs" / "train-abcde" / "attempt-1"
    assert [path.name for path in fresh.iterdir()] == ["task-0.log"]


def test_a_file_that_is_all_but_empty_does_not_keep_a_backup_from_its_end(state, database, tmp_path):
    output = state / "jobs" / "train-abcde" / "attempt-1" / "files"
    output.mkdir()
    for name, size in (("endless", 2**42), ("with-a-hole", 2**20)):
        with (output / name).open("wb") as file:
            file.write(b"begin")
            file.truncate(size)
    assert back_up(state, tmp_path / "b", 0.0).left_out == 1
    restore(tmp_path / "b", tmp_path / "fresh")
    (restored,) = (tmp_path / "fresh" / output.relative_to(state)).iterdir()
    assert restored.name == "with-a-hole"
    assert restored.read_bytes() == b"begin".ljust(2**20, b"\0")


def test_a_file_with_two_names_comes_back_under_both(state, database, tmp_path):
    folder = state / "jobs" / "train-abcde" / "attempt-1"
    (folder / "best.pt").write_bytes(b"weights")
    (folder / "last.pt").hardlink_to(folder / "best.pt")
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    restored = tmp_path / "fresh" / "jobs" / "train-abcde" / "attempt-1"
    assert [(restored / name).read_bytes() for name in ("best.pt", "last.pt")] == [b"weights"] * 2


def test_programs_stay_executable_and_nobody_else_may_write_what_is_restored(state, database, tmp_path):
    program = state / "jobs" / "train-abcde" / "run"
    program.touch()
    program.chmod(0o4777)
    os.utime(program, (5, 5))
    back_up(state, tmp_path / "b.tar.gz", 1000.0)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    restored = (tmp_path / "fresh" / "jobs" / "train-abcde" / "run").stat()
    assert (stat.S_IMODE(restored.st_mode), restored.st_mtime) == (0o755, 5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../outside", tarfile.REGTYPE),
        ("jobs/../../outside", tarfile.REGTYPE),
        ("{outside}", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("link", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
        ("disk", tarfile.BLKTYPE),
    ],
)
def test_a_member_that_is_no_file_within_is_not_unpacked(tmp_path, name, kind):
    member = tarfile.TarInfo(name.format(outside=tmp_path / "in" / "outside"))
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as evil:
        evil.addfile(member, io.BytesIO())
        evil.addfile(tarfile.TarInfo(MANIFEST), io.BytesIO())
    with pytest.raises(InvalidInputError, match=r"evil\.tar\.gz: .* is no file of a backup"):
        restore(tmp_path / "evil.tar.gz", tmp_path / "in" / "fresh")
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize(
    "manifest", [b'{"format": 1, "version": "0"}', b'{"format": 1, "files": {}}', b"[" * 100_000], ids=len
)
def test_a_manifest_that_says_too_little_or_cannot_be_read_restores_nothing(tmp_path, manifest):
    member = tarfile.TarInfo(MANIFEST)
    member.size = len(manifest)
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as evil:
        evil.addfile(member, io.BytesIO(manifest))
    with pytest.raises(InvalidInputError, match="not a whole backup"):
        restore(tmp_path / "evil.tar.gz", tmp_path / "in" / "fresh")
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize(
    "said", [{"mtime": "inf"}, {"mtime": "nan"}, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}], ids=str
)
def test_a_member_that_says_what_cannot_be_of_itself_restores_nothing(tmp_path, said):
    member = tarfile.TarInfo("file")
    member.pax_headers, member.size = said, 1
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as evil:
        evil.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(InvalidInputError, match=r"evil\.tar\.gz is damaged or no backup"):
        restore(tmp_path / "evil.tar.gz", tmp_path / "in" / "fresh")
    assert list((tmp_path / "in").iterdir()) == []


LOCKS = [Lock(KeySource(file=b"k" * 32), cipher) for cipher in Cipher]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.cipher.value)
def test_an_encrypted_backup_tells_nothing_without_its_key_and_comes_back_with_it(state, database, tmp_path, lock):
    back_up(state, tmp_path / "b.sealed", 1000.0, lock=lock)
    assert b"secret" not in (tmp_path / "b.sealed").read_bytes()
    assert needed_key_of(tmp_path / "b.sealed") == "file"
    restore(tmp_path / "b.sealed", tmp_path / "fresh", lock.key)
    assert rows(tmp_path / "fresh") == ["train-abcde"]
    assert (tmp_path / "fresh" / "token").read_text() == "secret\n"


def test_beside_an_encrypted_backup_nothing_lies_in_plain_and_what_a_killed_one_left_goes_with_the_next(
    state: Path, database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "share"
    elsewhere.mkdir()
    found: list[Path] = []

    def killed(*_: object) -> None:
        found.extend(elsewhere.iterdir())
        for path in state.glob("millpond.db.*.db"):
            shutil.copy(path, state / f"millpond.db.{2**22 + 1}.db")  # no process has such a number
        raise OSError(errno.EIO, "gone")

    with monkeypatch.context() as patched:
        patched.setattr(backup, "_write", killed)
        with pytest.raises(UnavailableError):
            back_up(state, elsewhere / "b.sealed", 1000.0, lock=LOCKS[0])
    assert [path.suffix for path in found] == [".partial"]
    assert len(list(state.glob("millpond.db.*.db"))) == 1
    back_up(state, elsewhere / "b.sealed", 1000.0, lock=LOCKS[0])
    assert list(state.glob("millpond.db.*.db")) == []


@pytest.mark.parametrize("place", [10, 60, 300, -40, -1])
def test_an_encrypted_backup_with_a_flipped_bit_restores_nothing(state, database, tmp_path, place):
    back_up(state, tmp_path / "b.sealed", 1000.0, lock=LOCKS[0])
    damaged = bytearray((tmp_path / "b.sealed").read_bytes())
    damaged[place] ^= 1
    (tmp_path / "b.sealed").write_bytes(damaged)
    with pytest.raises(InvalidInputError):
        restore(tmp_path / "b.sealed", tmp_path / "fresh", LOCKS[0].key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.sealed", "state"]


def test_a_wrong_key_restores_nothing_and_is_called_wrong(state, database, tmp_path):
    back_up(state, tmp_path / "b.sealed", 1000.0, lock=LOCKS[0])
    with pytest.raises(InvalidInputError, match=r"b\.sealed: the key is wrong; use the one"):
        restore(tmp_path / "b.sealed", tmp_path / "fresh", KeySource(file=b"j" * 32))
    assert not (tmp_path / "fresh").exists()


def test_what_an_upgrade_left_beside_the_database_is_not_in_a_backup(state, database, tmp_path):
    (state / "millpond.db.before-accounts").write_text("old")
    back_up(state, tmp_path / "b.tar.gz", 1000.0, jobs=False)
    restore(tmp_path / "b.tar.gz", tmp_path / "fresh")
    assert sorted(path.name for path in (tmp_path / "fresh").iterdir()) == ["millpond.db", "token"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_or_a_restore_that_is_terminated_leaves_nothing_of_it(
    state: Path, database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    def terminated(*_: object) -> None:
        assert signal.getsignal(end) is not signal.SIG_DFL
        signal.raise_signal(end)

    back_up(state, tmp_path / "whole.tar.gz", 1000.0)
    monkeypatch.setattr(backup, "_write", terminated)
    monkeypatch.setattr(backup, "_unpack", terminated)
    before = signal.signal(end, signal.SIG_DFL)
    try:
        for command, file, folder in (("backup", "b.tar.gz", state), ("restore", "whole.tar.gz", tmp_path / "fresh")):
            arguments = [command, str(tmp_path / file), "--state-dir", str(folder)]
            with pytest.raises(click.Abort):
                CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    finally:
        signal.signal(end, before)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["state", "whole.tar.gz"]


def test_a_backup_to_standard_output_is_refused_and_leaves_no_file(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="it cannot go to standard output; name a file"):
        CliRunner().invoke(
            cli, ["backup", "-", "--state-dir", str(state)], standalone_mode=False, catch_exceptions=False
        )
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_no_passphrase_is_asked_for_where_nothing_can_be_backed_up_or_restored(
    state: Path, database: sqlite3.Connection, tmp_path: Path
) -> None:
    sealed = tmp_path / "there.tar.gz"
    back_up(state, sealed, 1.0, lock=Lock(KeySource(passphrase="a long pass phrase"), Cipher.AES_256_GCM))
    for words, refusal in (
        (
            ["backup", str(tmp_path / "new.tar.gz"), "--encrypt", "--state-dir", str(tmp_path)],
            "there is no millpond.db",
        ),
        (["backup", str(sealed), "--encrypt", "--state-dir", str(state)], "exists already"),
        (["restore", str(sealed), "--state-dir", str(state)], "is not empty"),
    ):
        with pytest.raises((ConflictError, UnavailableError), match=refusal):
            CliRunner().invoke(cli, [*words, "--stdin"], input="", standalone_mode=False, catch_exceptions=False)
