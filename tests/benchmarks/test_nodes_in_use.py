"""The benchmark of moves counts the nodes that have work, over time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.traces.cases import PHILLY_LOG
from benchmarks.traces.nodes_in_use import NodesInUse, judged, played

ROWS = "\n".join(
    (
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-01 00:00:00,3600,6,1,a",
        "2017-10-01 00:00:00,36000,2,1,a",
        "2017-10-01 00:00:10,36000,2,1,a",
        "2017-10-01 00:00:10,3600,6,1,a",
        "2017-10-01 08:00:10,60,1,1,a",
    )
)
"""On two nodes lies a job that lasts, beside a larger one that does not."""


@pytest.mark.parametrize(("moves", "nodes"), [(False, 2.0), (True, (3_600 + 28_810) / 28_810)])
def test_nodes_are_counted_as_long_as_they_have_work(tmp_path: Path, moves: bool, nodes: float) -> None:
    trace = tmp_path / "philly_2017-09_2017-10.csv"
    trace.write_text(ROWS + "\n")
    row = played(trace, 2, "best-fit", moves=moves)
    assert row.nodes == pytest.approx(nodes, rel=0.01)
    assert row.ideal == pytest.approx((3_600 + 28_810) / 28_810, rel=0.01)
    assert (row.moves_a_day > 0) is moves


def test_moves_are_held_against_both_targets() -> None:
    assert PHILLY_LOG.file.endswith(".csv.gz")
    still = NodesInUse(58.0, 52.0, 1_000.0, 0.0)
    for nodes, jct_s, met in ((54.0, 1_009.0, True), (54.0, 1_011.0, False), (55.0, 1_000.0, False)):
        rows = {"default": still, "default, with moves": NodesInUse(nodes, 52.0, jct_s, 1.0)}
        assert judged(rows, 140) is met
        assert judged(rows, 100) is None
