"""Replays on kernels as they are written: to compile them takes every process 20 s of CPU in a fresh clone."""

from __future__ import annotations

import contextlib

import pytest


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no compiler, neither here nor in processes that are started."""
    with contextlib.suppress(ImportError):
        import numba  # noqa: F401 - which asks but once whether it is switched off
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
