"""The benchmark of elastic jobs reads Sia's tables as its paper says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.traces.growth import CARDS, StepTimes, played


def write_tables(folder: Path) -> None:
    """An application whose steps take 1 s on one card, and 0.1 s more for what several say to each other."""
    application = folder / "cifar10"
    application.mkdir(parents=True)
    rows = ["placement,local_bsz,step_time,sync_time"]
    for place, sync_s in (("1", 0.0), ("2", 0.1), ("4", 0.1), ("22", 0.3)):
        width = sum(map(int, place))
        rows += [f"{place},{batch},{batch / 100 + sync_s},{sync_s}" for batch in (100 // width, 50 // width)]
    for card in CARDS:
        (application / f"placements-{card}.csv").write_text("\n".join(rows) + "\n")
    epochs = "\n".join(f"{epoch},{10 * epoch}" for epoch in range(1, 101))
    (application / "validation-100.csv").write_text(f"progress,iteration\n{epochs}\n")
    jobs = [f"cifar10-{number},{100 * number},cifar10,2,100" for number in range(3)]
    (folder / "philly-workload-1.csv").write_text("\n".join(["name,time,application,num_replicas,batch_size", *jobs]))


def test_a_step_splits_the_batch_over_the_cards_of_the_fewest_nodes_and_accumulates_the_rest(tmp_path: Path) -> None:
    write_tables(tmp_path)
    times = StepTimes(tmp_path / "cifar10" / "placements-aws.csv")
    assert times.widths == [1, 2, 4]
    assert [times.of(width, 100) for width in times.widths] == pytest.approx([1.0, 0.6, 0.35])
    assert times.of(1, 150) == pytest.approx(1.5)
    assert times.of(2, 400) == pytest.approx(4 * 0.5 + 0.1)


@pytest.mark.parametrize(("elastic", "measured"), [(False, False), (True, True)])
def test_all_jobs_end(tmp_path: Path, elastic: bool, measured: bool) -> None:
    write_tables(tmp_path)
    row = played(tmp_path, 3, elastic=elastic, measured=measured)
    assert row["unfinished"] == 0
    assert row["mean_jct_s"] == pytest.approx(600.0 if not elastic else 390.0, rel=0.2)
