"""The benchmark of shared cards plays a trace with them and without, and holds the figures against its targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.traces.shared_cards import MOST_JCT_S, MOST_MAKESPAN_S, SPEEDS, TRACE, Played, judged, played


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Forty jobs of one card, of which two on one card make 1.6 times the progress of one."""
    kind = "('lm', 1)"
    (tmp_path / SPEEDS).write_text(json.dumps({"v100": {kind: {"null": 10.0, kind: [8.0, 8.0]}}}))
    line = "lm\tpython3 main.py\tcv\t--steps\t1\t36000\t1\t1\t-1.0\t{}\n"
    (tmp_path / TRACE.file).write_text("".join(line.format(60 * number) for number in range(40)))
    return tmp_path


@pytest.mark.long
def test_jobs_end_sooner_on_shared_cards(traces: Path) -> None:
    alone, shared = (played(traces, further, 1) for further in ((), ("--packs",)))
    assert shared.makespan_s < 0.9 * alone.makespan_s
    assert shared.mean_jct_s < alone.mean_jct_s
    assert shared.shifted_jct_s != shared.mean_jct_s


def test_both_targets_are_told() -> None:
    rows = judged(Played(MOST_JCT_S, MOST_MAKESPAN_S + 1, 0.0, 0.0))
    assert [row.met for row in rows] == [True, False]
