"""The typical mix covers the popular shapes, and the learnt one follows what is submitted."""

from __future__ import annotations

import json

import pytest

from millpond.scheduling.placement import mix as mix_module
from millpond.scheduling.placement.mix import LearntMix, TypicalMix
from millpond.scheduling.placement.shapes import ANY_MODEL, Shape

DAY = 86_400.0
HALF, WHOLE, HOST = Shape(4_000, 0, 1, 500), Shape(8_000, 0, 1), Shape(16_000)


def test_the_mix_covers_95_percent_of_the_tasks_with_the_most_popular_shapes() -> None:
    counts = [(HALF, 50), (WHOLE, 30), (HOST, 15), (Shape(1_000), 3), (Shape(2_000), 2)]
    mix = TypicalMix.from_counts(counts)
    assert [shape.weight for shape in mix.shapes] == [50, 30, 15]
    assert [shape.devices for shape in mix.shapes] == [1, 1, 0]


def test_shapes_that_differ_in_memory_alone_are_one_typical_shape() -> None:
    mix = TypicalMix.from_counts([(Shape(4_000, 1_024, 1, 500), 2), (Shape(4_000, 2_048, 1, 500), 3)])
    assert [shape.weight for shape in mix.shapes] == [5]


def test_slices_and_demand_count_every_task_beyond_the_popular_ones() -> None:
    mix = TypicalMix.from_counts([(HALF, 98), (Shape(0, 0, 1, 300), 1), (Shape(0, 0, 2, model_mask=0b10), 1)])
    assert mix.slices == {300: 1, 500: 98}
    assert mix.demand_milli == {0b10: 2_000, ANY_MODEL: 98 * 500 + 300}


def test_the_learnt_mix_is_rebuilt_when_the_shares_drift_by_more_than_ten_percent() -> None:
    learnt = LearntMix(check_every=10)
    assert learnt.observe(HALF, 0.0, tasks=100)
    assert not learnt.observe(WHOLE, 1.0, tasks=10)
    assert learnt.observe(WHOLE, 2.0, tasks=10)
    assert [shape.devices for shape in learnt.current.shapes] == [1, 1]
    assert learnt.drift() == 0.0


def test_what_was_seen_one_half_life_ago_weighs_half() -> None:
    learnt = LearntMix(half_life_s=7 * DAY)
    learnt.observe(HALF, 0.0, tasks=100)
    learnt.observe(WHOLE, 7 * DAY, tasks=50)
    weights = {shape.compute_milli: shape.weight for shape in learnt.rebuild().shapes}
    assert weights[500] == weights[1000]


def test_what_was_seen_long_ago_is_forgotten() -> None:
    learnt = LearntMix(half_life_s=DAY)
    learnt.observe(HALF, 0.0)
    learnt.observe(WHOLE, 100 * DAY)
    assert [shape.compute_milli for shape in learnt.rebuild().shapes] == [1000]


def test_of_too_many_shapes_the_lightest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mix_module, "MOST_SHAPES", 10)
    learnt = LearntMix(check_every=1)
    learnt.observe(HALF, 0.0, tasks=3)
    for memory_mib in range(100):
        learnt.observe(Shape(1_000, memory_mib), 1.0)
    assert len(learnt.snapshot()["counts"]) <= 10
    assert [shape.devices for shape in learnt.rebuild().shapes] == [0, 1]


def test_a_restored_mix_goes_on_identically() -> None:
    learnt = LearntMix(check_every=5)
    for step in range(23):
        learnt.observe((HALF, WHOLE, HOST)[step % 3], step * DAY)
    other = LearntMix(check_every=5)
    other.restore(json.loads(json.dumps(learnt.snapshot())))
    for step in range(23, 60):
        shape = (HALF, HOST)[step % 2]
        assert learnt.observe(shape, step * DAY) == other.observe(shape, step * DAY)
        assert learnt.current == other.current
    assert learnt.snapshot() == other.snapshot()
