"""What tests of a task's streams share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def ignored_sigio() -> Iterator[None]:
    """SIGIO, which a supervisor waits for, does not end the process of the tests."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, before)
