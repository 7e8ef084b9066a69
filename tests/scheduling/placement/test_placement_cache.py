"""The cache of compiled kernels among processes that compile at the same time."""

from __future__ import annotations

import atexit
import fcntl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching

from millpond.scheduling.ordering.running import bin_at
from millpond.scheduling.placement import kernels
from millpond.scheduling.placement.cache_lock import LOCK_FILE, LockedCacheFile
from millpond.scheduling.placement.kernels import compiled


def cache_of_one_process(folder: Path) -> LockedCacheFile:
    return LockedCacheFile(caching.IndexDataCacheFile(str(folder), "kernel", "the source"))


def test_of_two_processes_that_keep_a_kernel_at_once_each_finds_its_own_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = cache_of_one_process(tmp_path), cache_of_one_process(tmp_path)
    at_once = threading.Thread(target=theirs.save, args=("theirs", "their code"))
    write = ours._file._save_index

    def with_theirs_in_between(overloads: Any) -> None:
        at_once.start()
        with (tmp_path / LOCK_FILE).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        write(overloads)

    monkeypatch.setattr(ours._file, "_save_index", with_theirs_in_between)
    ours.save("ours", "our code")
    at_once.join()
    for reader in (ours, theirs, cache_of_one_process(tmp_path)):
        assert (reader.load("ours"), reader.load("theirs")) == ("our code", "their code")


def test_nothing_is_found_where_nothing_was_kept(tmp_path: Path) -> None:
    assert cache_of_one_process(tmp_path / "none").load("ours") is None


def test_compiled_kernels_are_kept_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    functions = compiled()._functions
    assert bin_at.__name__ in functions
    assert {type(kernel._cache._cache_file) for kernel in functions.values()} == {LockedCacheFile}


def test_where_compiled_kernels_cannot_be_kept_a_folder_of_the_process_has_them_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "millpond").touch()
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(atexit, "register", lambda what, *on, **how: at_exit.append(partial(what, *on, **how)))
    private = kernels._cache_directory({}, "0.60")
    assert private.is_dir()
    assert private.stat().st_mode & 0o777 == 0o700
    (record,) = caplog.records
    assert f"compiled kernels cannot be kept in {tmp_path}/millpond/kernels-" in record.message
    assert "(Not a directory): each process takes a minute to compile them; have XDG_CACHE_HOME" in record.message
    for what in at_exit:
        what()
    assert not private.exists()
