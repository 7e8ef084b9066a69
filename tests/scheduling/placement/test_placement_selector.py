"""The cached, compiled selection gives what a plain search over all nodes gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive_placement import Naive, hold

from millpond.scheduling.placement import kernels
from millpond.scheduling.placement.arrays import ClusterArrays
from millpond.scheduling.placement.filters import FilterStep
from millpond.scheduling.placement.links import LinkTables
from millpond.scheduling.placement.mix import TypicalMix
from millpond.scheduling.placement.selector import Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.shapes_with_room import ShapesWithRoom
from millpond.scheduling.placement.tables import Scorer, Weights, build_tables
from seeds import few_then_many

SHAPES = [
    Shape(cpu_milli=2_000, memory_mib=4_096),
    Shape(cpu_milli=16_000),
    Shape(4_000, 8_192, 1, 250),
    Shape(4_000, 8_192, 1, 460),
    Shape(2_000, 0, 1, 810, model_mask=0b01),
    Shape(2_000, 0, 1, 500, limit_milli=1_000),
    Shape(1_000, 0, 1, 0, limit_milli=300, device_memory_mib=4_096),
    Shape(1_000, 0, 1, 200, device_memory_mib=10_000),
    Shape(8_000, 16_384, 1),
    Shape(8_000, 16_384, 1, device_memory_mib=20_000),
    Shape(4_000, 0, 2, model_mask=0b10),
    Shape(4_000, 0, 2, extras=(1,)),
    Shape(8_000, 0, 3),
    Shape(8_000, 0, 4),
    Shape(8_000, 0, 8),
    Shape(4_000, 0, 1, 500, pool=1),
]
KERNELS = ["interpreted", pytest.param("compiled", marks=pytest.mark.long)]
KERNELS_WITH_EXAMPLES = few_then_many([("interpreted", 8)], [("interpreted", 20), ("compiled", 20)])


def kernel_set(name: str) -> kernels.KernelSet:
    if name == "compiled":
        return kernels.compiled()
    return kernels.interpreted()


def add_node(arrays: ClusterArrays, links: LinkTables, rng: random.Random) -> None:
    cards = rng.choice([0, 1, 2, 4, 8])
    switches = [card // 2 for card in range(cards)]
    node = arrays.append_node(
        cpu_milli=rng.choice([16_000, 32_000, 64_000]),
        memory_mib=rng.choice([65_536, 131_072]),
        models=[rng.randrange(2)] * cards,
        device_memory_mib=rng.choice([0, 16_384, 32_768]),
        limit_milli=rng.choice([1_000, 1_500]),
        sockets=[card // 4 for card in range(cards)],
        switches=switches,
        rack=rng.randrange(3),
        pool=rng.randrange(2),
        extras=(rng.randrange(3),),
    )
    if cards:
        links.adopt(arrays, node)


def mix_of(rng: random.Random) -> TypicalMix:
    return TypicalMix.from_counts([(shape, rng.randrange(1, 40)) for shape in rng.sample(SHAPES, 9)])


def build(seed: int, scorer: Scorer, kernel_name: str, **options: Any) -> tuple[Selector, Naive, random.Random]:
    rng = random.Random(seed)
    arrays = ClusterArrays(2, 8, extras=1, log_size=options.pop("log_size", 64))
    links = LinkTables()
    for _ in range(rng.randrange(1, 7)):
        add_node(arrays, links, rng)
    mix, weights = mix_of(rng), Weights(load=2.0)
    tables = build_tables(mix, scorer, weights, capacity_milli={0: 9_000, 1: 4_000}, seed=seed)
    selector = Selector(arrays, tables, links=links, kernels=kernel_set(kernel_name), **options)
    return selector, Naive(arrays, mix, scorer, weights, tables, links), rng


def random_change(selector: Selector, naive: Naive, held: list[Any], rng: random.Random) -> None:
    arrays = selector.arrays
    node = rng.randrange(arrays.node_count)
    kind = rng.randrange(8)
    if kind == 0:
        add_node(arrays, selector.links, rng)
    elif kind == 1:
        arrays.node_usable[node] ^= 1
        arrays.touch(node)
    elif kind == 2 and arrays.device_total[node]:
        arrays.device_usable[arrays.first_device[node]] ^= 1
        arrays.touch(node)
    elif kind == 3:
        first, total = arrays.first_device_cells[node], int(arrays.device_total[node])
        arrays.load_base_milli[first : first + total] = [rng.randrange(1_001) for _ in range(total)]
        arrays.load_rate_milli[first : first + total] = [rng.choice((0, 300, 1_000)) for _ in range(total)]
        arrays.touch(node)
    elif kind <= 5 and held:
        hold(arrays, *held.pop(rng.randrange(len(held))), sign=-1)


@pytest.mark.parametrize(("kernel_name", "examples"), KERNELS_WITH_EXAMPLES)
@pytest.mark.parametrize("scorer", [Scorer.DEFAULT, Scorer.FGD, Scorer.BEST_FIT, Scorer.DOT_PRODUCT])
def test_a_selection_is_the_best_node_of_a_plain_search(kernel_name: str, scorer: Scorer, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 10**6))
    def compare(seed: int) -> None:
        # A log of 8 entries overflows often, and 3 classes evict each other.
        selector, naive, rng = build(seed, scorer, kernel_name, log_size=8, class_limit=3)
        held: list[Any] = []
        for _ in range(20):
            shape = rng.choice(SHAPES)
            count = selector.arrays.node_count
            mask = np.array([rng.random() < 0.7 for _ in range(count)], dtype=np.uint8) if rng.random() < 0.4 else None
            choice = selector.place(shape, mask)
            expected = naive.best(shape, None if mask is None else mask.tolist())
            assert (None if choice is None else tuple(choice)) == expected
            if choice is not None:
                hold(selector.arrays, choice.node, shape, choice.devices)
                held.append((choice.node, shape, choice.devices))
            random_change(selector, naive, held, rng)

    compare()


@pytest.mark.parametrize("kernel_name", KERNELS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_the_histogram_of_failures_accounts_for_every_node(kernel_name: str, seed: int) -> None:
    selector, naive, rng = build(seed, Scorer.DEFAULT, kernel_name)
    held: list[Any] = []
    for _ in range(10):
        shape = rng.choice(SHAPES)
        mask = [int(rng.random() < 0.7) for _ in range(selector.arrays.node_count)]
        counts = selector.failures(shape, np.array(mask, dtype=np.uint8))
        assert counts.sum() == selector.arrays.node_count
        assert counts[FilterStep.FITS] == naive.fitting(shape, mask)
        for node in range(selector.arrays.node_count):
            assert (selector.fit(node, shape) is FilterStep.FITS) == naive.fits(node, shape)
        choice = selector.place(shape)
        if choice is not None:
            hold(selector.arrays, choice.node, shape, choice.devices)
        random_change(selector, naive, held, rng)


@pytest.mark.parametrize(("kernel_name", "examples"), KERNELS_WITH_EXAMPLES)
def test_what_fits_nowhere_is_seen_to_fit_as_soon_as_some_node_has_changed(kernel_name: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 10**6))
    def compare(seed: int) -> None:
        # A log of 8 entries overflows often.
        selector, naive, rng = build(seed, Scorer.DEFAULT, kernel_name, log_size=8)
        held: list[Any] = []
        room = ShapesWithRoom(selector, SHAPES)
        for _ in range(30):
            numbers = rng.sample(range(len(SHAPES)), 5)
            wanted = [SHAPES[number] for number in numbers]
            nodes = range(selector.arrays.node_count)
            fit = [any(naive.fits(node, shape) for node in nodes) for shape in wanted]
            if rng.random() < 0.5:
                assert selector.fit_anywhere(wanted) == fit
            assert room.of(np.array(numbers)).tolist() == fit
            large = rng.choice(SHAPES[8:])
            choice = selector.place(large)
            if choice is not None:
                hold(selector.arrays, choice.node, large, choice.devices)
                held.append((choice.node, large, choice.devices))
            for _ in range(rng.choice((0, 1, 12))):
                random_change(selector, naive, held, rng)

    compare()


@pytest.mark.long
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_random_selection_is_the_same_for_the_same_seed_compiled_or_not(seed: int) -> None:
    outcomes = []
    for name in ("interpreted", "compiled"):
        selector, _, rng = build(seed, Scorer.RANDOM, name)
        placed = []
        for _ in range(15):
            shape = rng.choice(SHAPES)
            choice = selector.place(shape)
            placed.append(choice)
            if choice is not None:
                assert selector.fit(choice.node, shape) is FilterStep.FITS
                hold(selector.arrays, choice.node, shape, choice.devices)
        outcomes.append(placed)
    assert outcomes[0] == outcomes[1]


def test_random_selection_spreads_over_the_nodes_that_fit() -> None:
    arrays = ClusterArrays(8, 64)
    for _ in range(8):
        arrays.append_node(cpu_milli=1_000, memory_mib=0)
    selector = Selector(arrays, build_tables(TypicalMix(), Scorer.RANDOM, seed=3))
    nodes = [selector.place(Shape(cpu_milli=1)).node for _ in range(400)]
    assert min(nodes.count(node) for node in range(8)) > 20


@pytest.mark.long
def test_kernels_can_be_swapped_in_the_middle_without_a_different_choice() -> None:
    outcomes = []
    for swap in (False, True):
        selector, _, rng = build(7, Scorer.DEFAULT, "interpreted")
        placed = []
        for step in range(20):
            if swap and step == 10:
                selector.use_kernels(kernel_set("compiled"))
            shape = rng.choice(SHAPES)
            choice = selector.place(shape)
            placed.append(choice)
            if choice is not None:
                hold(selector.arrays, choice.node, shape, choice.devices)
        outcomes.append(placed)
    assert outcomes[0] == outcomes[1]


def test_the_lowest_node_wins_a_tie() -> None:
    arrays = ClusterArrays()
    for _ in range(130):
        arrays.append_node(cpu_milli=8_000, memory_mib=1_024, models=[0])
    selector = Selector(arrays, build_tables(TypicalMix()))
    assert selector.place(Shape(1_000, 0, 1)).node == 0
    mask = np.ones(130, dtype=np.uint8)
    mask[:65] = 0
    assert selector.place(Shape(1_000, 0, 1), mask).node == 65


def test_a_loaded_card_is_avoided_only_if_load_weighs() -> None:
    for weight, expected in ((0.0, 0), (5.0, 1)):
        arrays = ClusterArrays()
        for _ in range(2):
            arrays.append_node(cpu_milli=8_000, memory_mib=1_024, models=[0])
        arrays.load_base_milli[0] = 1_900
        arrays.touch(0)
        selector = Selector(arrays, build_tables(TypicalMix(), weights=Weights(load=weight)))
        assert selector.place(Shape(1_000, 0, 1)).node == expected


@pytest.mark.parametrize(
    ("expected_work", "cards_of_slices"),
    [
        (Shape(0, 0, 1), [4, 0, 0]),
        (Shape(0, 0, 1, 750, device_memory_mib=24_576), [2, 2, 0]),
        (Shape(0, 0, 1, 500), [4, 0, 0]),
    ],
    ids=["whole cards", "24 of 32 GiB of one", "halves of cards"],
)
def test_slices_by_memory_alone_leave_the_memory_that_expected_work_needs(
    expected_work: Shape, cards_of_slices: list[int]
) -> None:
    arrays = ClusterArrays()
    arrays.append_node(cpu_milli=8_000, memory_mib=1_024, models=[0] * 3, device_memory_mib=[32_768] * 3)
    piece = Shape(0, 0, 1, 0, limit_milli=0, device_memory_mib=4_096)
    selector = Selector(arrays, build_tables(TypicalMix.from_counts([(expected_work, 3), (piece, 4)])))
    found = [0, 0, 0]
    for _ in range(4):
        choice = selector.place(piece)
        assert choice is not None
        (device,) = choice.devices
        hold(arrays, 0, piece, (device,))
        found[device] += 1
    assert found == cards_of_slices


def test_where_numba_is_switched_off_there_are_no_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    with pytest.raises(ImportError, match="NUMBA_DISABLE_JIT"):
        kernels.compiled()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    assert kernel_set("compiled").is_compiled
