"""The cache of compiled kernels among processes that compile at the same time."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching

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
    kernels = compiled()._functions
    assert kernels
    assert {type(kernel._cache._cache_file) for kernel in kernels.values()} == {LockedCacheFile}
