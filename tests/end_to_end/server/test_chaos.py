"""A few kills by ``benchmarks/server/chaos.py``: whatever the moment, nothing is lost and nothing is done twice."""

from __future__ import annotations

import pytest

from benchmarks.server import chaos

pytestmark = pytest.mark.long


def test_a_server_killed_at_random_moments_loses_nothing_and_does_nothing_twice(tmp_path):
    findings = chaos.torment(tmp_path, kills=3, seed=7)
    assert findings.wrong == []
    assert findings.counts["accepted"] >= 3
    assert findings.counts["runs of tasks"] >= findings.counts["succeeded"]
