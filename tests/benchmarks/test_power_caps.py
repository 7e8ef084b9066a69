"""What power caps save, on rows of the form that Zeus' tables have."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.energy.power_caps import (
    MAX_SLOWDOWN,
    MOST_SLOWDOWN,
    compared,
    is_met,
    oracle,
    played,
    read_curves,
    world_of,
)
from millpond.model.errors import InvalidInputError

SAMPLE = """\
dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
made-up,gentle,8,adam,100,150.0,99.0
made-up,gentle,8,adam,175,103.0,170.0
made-up,gentle,8,adam,250,100.0,240.0
made-up,steep,8,adam,100,300.0,99.0
made-up,steep,8,adam,175,130.0,170.0
made-up,steep,8,adam,250,100.0,240.0
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(SAMPLE)
    return path


def test_a_job_that_hardly_slows_down_saves_what_the_best_cap_does_and_one_that_does_nothing(table: Path) -> None:
    curves = read_curves(table)
    before = played(world_of("V100", curves, 4, 2.0, 0.0))
    ours = played(world_of("V100", curves, 4, 2.0, MAX_SLOWDOWN))
    best = oracle(curves, before, MAX_SLOWDOWN)
    gentle, steep = "made-up/gentle/8/adam", "made-up/steep/8/adam"
    assert best.energy_j[gentle][0] / before.energy_j[gentle][0] == pytest.approx(1.03 * 170.0 / 240.0)
    assert best.energy_j[steep] == before.energy_j[steep]
    assert ours.energy_j[gentle][0] == pytest.approx(before.energy_j[gentle][0]), "the first run has no cap"
    assert 1.0 - ours.energy_j[gentle][-1] / before.energy_j[gentle][-1] > 0.25
    assert ours.slowest <= MAX_SLOWDOWN


def test_the_rows_are_held_against_the_oracle(table: Path) -> None:
    found = compared("V100", read_curves(table), 6, 2.0)
    assert found["rows"]["no caps"]["saved_percent"] == 0.0
    assert found["rows"]["by measuring"]["saved_percent"] > 0.0
    assert found["configurations"] == 2


def test_the_target_is_a_part_of_the_oracle_and_no_slow_run() -> None:
    best = {"saved_percent": 10.0, "slowest_run": 0.05}
    assert is_met({"by measuring": {"saved_percent": 8.0, "slowest_run": MOST_SLOWDOWN}, "oracle": best})
    assert not is_met({"by measuring": {"saved_percent": 7.9, "slowest_run": 0.05}, "oracle": best})
    assert not is_met({"by measuring": {"saved_percent": 9.0, "slowest_run": 0.08}, "oracle": best})


@pytest.mark.parametrize("text", ["a,b\n1,2\n", SAMPLE.replace("150.0", "fast"), SAMPLE.replace("150.0", "0")])
def test_a_file_of_another_form_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        read_curves(path)
