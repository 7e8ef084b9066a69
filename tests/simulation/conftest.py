"""Replays on kernels as they are written: to compile them takes every process 20 s of CPU in a fresh clone."""

from __future__ import annotations

import pytest

from millpond.scheduling.placement import kernel_warmup
from millpond.scheduling.placement.kernels import KernelSet
from millpond.simulation import core


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no compiler here, and in processes that are started none that does anything."""

    def missing() -> KernelSet:
        raise ImportError("no compiler")

    monkeypatch.setattr(core, "compiled", missing)
    monkeypatch.setattr(kernel_warmup, "compiled", missing)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
