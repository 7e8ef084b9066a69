"""Each filter says no for its own reason, and whole cards need wholly free cards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from naive_placement import hold

from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.filters import FilterStep
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.tables import build_tables


def one_node(**changes: object) -> Selector:
    arrays = ClusterArrays(extras=1)
    arrays.append_node(
        cpu_milli=16_000, memory_mib=65_536, models=[0, 0, 1, 1], device_memory_mib=16_384, pool=2, extras=(1,)
    )
    for name, value in changes.items():
        getattr(arrays, name)[: 4 if name.startswith(("device", "compute", "limit")) else 1] = value
    return Selector(arrays, build_tables(TypicalMix()))


@pytest.mark.parametrize(
    ("expected", "shape", "changes"),
    [
        (FilterStep.FITS, Shape(16_000, 65_536, 4, extras=(1,), pool=2), {}),
        (FilterStep.UNUSABLE, Shape(), {"node_usable": 0}),
        (FilterStep.WRONG_POOL, Shape(pool=1), {}),
        (FilterStep.CPU, Shape(16_001), {}),
        (FilterStep.MEMORY, Shape(0, 65_537), {}),
        (FilterStep.EXTRAS, Shape(extras=(2,)), {}),
        (FilterStep.DEVICE_COUNT, Shape(devices=5), {}),
        (FilterStep.MODEL, Shape(devices=3, model_mask=0b01), {}),
        (FilterStep.DEVICE_HEALTH, Shape(devices=3), {"device_usable": [1, 0, 0, 1]}),
        (FilterStep.DEVICE_COMPUTE, Shape(devices=2), {"compute_free_milli": [400, 500, 400, 500]}),
        (FilterStep.FRAGMENTED, Shape(devices=2), {"compute_free_milli": [1_000, 900, 900, 900]}),
        (FilterStep.FRAGMENTED, Shape(devices=1, compute_milli=500), {"compute_free_milli": [400, 400, 0, 0]}),
        (FilterStep.DEVICE_LIMIT, Shape(devices=1, compute_milli=300, limit_milli=900), {"limit_free_milli": 800}),
        (FilterStep.DEVICE_MEMORY, Shape(devices=1, compute_milli=500), {"device_memory_free_mib": 8_191}),
        (FilterStep.DEVICE_MEMORY, Shape(devices=1, device_memory_mib=20_000), {}),
    ],
    ids=lambda value: value.name if isinstance(value, FilterStep) else "",
)
def test_the_first_filter_that_refuses_is_named(expected: FilterStep, shape: Shape, changes: dict[str, object]) -> None:
    selector = one_node(**changes)
    assert selector.fit(0, shape) is expected
    assert selector.failures(shape)[expected] == 1


def test_masked_nodes_are_counted_as_such() -> None:
    assert one_node().failures(Shape(), np.zeros(1, dtype=np.uint8))[FilterStep.MASKED] == 1


@pytest.mark.parametrize(
    "disturb",
    [
        lambda a: hold(a, 0, Shape(0, 0, 1, 0, limit_milli=1, device_memory_mib=64), (0,)),
        lambda a: hold(a, 0, Shape(0, 0, 1, 10), (0,)),
        lambda a: a.device_usable.__setitem__(0, 0),
    ],
    ids=["a slice of memory alone", "a sliver of compute", "a sick device"],
)
def test_a_whole_card_needs_a_wholly_free_card(disturb: Callable[[ClusterArrays], None]) -> None:
    arrays = ClusterArrays()
    arrays.append_node(cpu_milli=16_000, memory_mib=65_536, models=[0], device_memory_mib=16_384, limit_milli=2_000)
    selector = Selector(arrays, build_tables(TypicalMix()))
    assert selector.fit(0, Shape(devices=1)) is FilterStep.FITS
    disturb(arrays)
    assert selector.fit(0, Shape(devices=1)) is not FilterStep.FITS


def test_a_card_of_unknown_memory_is_shared_by_compute_alone() -> None:
    arrays = ClusterArrays()
    arrays.append_node(cpu_milli=16_000, memory_mib=65_536, models=[0])
    selector = Selector(arrays, build_tables(TypicalMix()))
    assert selector.fit(0, Shape(devices=1, compute_milli=500, device_memory_mib=99_999)) is FilterStep.FITS


@pytest.mark.parametrize(
    "fields",
    [
        {"devices": 2, "compute_milli": 500},
        {"devices": 1, "compute_milli": 1_001},
        {"devices": 1, "compute_milli": 500, "limit_milli": 400},
        {"devices": 1, "compute_milli": 0},
        {"cpu_milli": -1},
        {"extras": (-1,)},
        {"model_mask": 1 << 63},
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Shape(**fields)  # type: ignore[arg-type]
