"""The bench that the tests of the local engine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.end_all()


@pytest.fixture(scope="session")
def gate_cache(_fake_driver_libraries: Path) -> Path:
    """Where the tests of the gate itself have theirs, too."""
    return _fake_driver_libraries.parent
