"""The bench that the tests of the local engine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lent_forkservers import forkservers
from local_bench import Bench

from millpond.engines.local import executor
from millpond.node.host import controllers


@pytest.fixture(scope="session", autouse=True)
def _lent_forkservers() -> Iterator[None]:
    with forkservers() as lend, pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "ForkserverClient", lend)
        yield


@pytest.fixture(autouse=True)
def _nobody_elses_kills(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that kills itself is not taken for one of which the kernel wanted the memory, as it does meanwhile of
    others on this machine."""
    counter = tmp_path_factory.mktemp("kills") / "memory.events"
    counter.write_text("oom_kill 0\n")
    monkeypatch.setattr(controllers, "own_kill_counter", lambda: counter)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.end_all()


@pytest.fixture(scope="session")
def gate_cache(_fake_driver_libraries: Path) -> Path:
    """Where the tests of the gate itself have theirs, too."""
    return _fake_driver_libraries.parent
