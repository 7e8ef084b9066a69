"""Makes what lies beside this file importable by the tests in the folders below, which are those of the scheduler.

Their short walks through random worlds are on kernels as they are written: to compile them takes a process longer.
"""

from __future__ import annotations

import pytest

import evictions
import guarantee_walk
from millpond.scheduling.placement.kernels import interpreted


@pytest.fixture(autouse=True)
def _short_walks_are_interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("long") is None:
        for walk in (evictions, guarantee_walk):
            monkeypatch.setattr(walk, "compiled", interpreted)
