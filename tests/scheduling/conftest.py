"""Makes what lies beside this file importable by the tests in the folders below, which are those of the scheduler.

Fixtures for tests that ask why jobs wait spare the estimates that come with the answers, which take most of the time.
"""

from __future__ import annotations

import pytest

from millpond.model.reasons import StartEstimate
from millpond.scheduling.estimating import estimate
from millpond.scheduling.estimating.estimate import StartEstimates
from millpond.scheduling.records import JobRecord


@pytest.fixture
def _few_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is estimated is not judged, but for its instants."""
    monkeypatch.setattr(estimate, "FUTURES", 2)


@pytest.fixture
def _no_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is estimated: even two futures take nine tenths of an answer."""

    def unknown(_: StartEstimates, record: JobRecord, *, fits_now: bool) -> StartEstimate:
        return StartEstimate(record.submitted_at, None, "", unknown=f"not asked here; {fits_now=}")

    monkeypatch.setattr(StartEstimates, "of", unknown)
