"""A few of the kills of ``benchmarks/chaos.py``: whatever the moment, nothing is lost and nothing is done twice."""

from __future__ import annotations

import pytest
from real_pond import REPOSITORY

pytestmark = pytest.mark.long


def test_a_server_killed_at_random_moments_loses_nothing_and_does_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    import chaos

    findings = chaos.torment(tmp_path, kills=3, seed=7)
    assert findings.wrong == []
    assert findings.counts["accepted"] >= 3
    assert findings.counts["runs of tasks"] >= findings.counts["succeeded"]
