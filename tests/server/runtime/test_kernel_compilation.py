"""Kernels are compiled beside the server, by a process of which nothing is where the server was started."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.server.runtime import kernel_compilation
from millpond.server.runtime.kernel_compilation import WORTHWHILE_NODES, accelerate


def test_modules_where_the_server_was_started_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "left_there.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernel_compilation, "kernel_warmup", SimpleNamespace(__name__="left_there"))
    loop: Any = None
    settings: Any = None
    accelerate(loop, WORTHWHILE_NODES, settings)
    for thread in threading.enumerate():
        if thread.name == "kernels":
            thread.join()
    assert not (tmp_path / "ran").exists()
    assert "scheduling goes on with interpreted kernels" in caplog.text
