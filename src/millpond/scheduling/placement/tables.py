"""What a score is computed from, folded into look-up tables.

The paper's fragmentation of a node sums over the typical shapes. Written as what is *useful* instead of what is
fragmented, the sum falls apart by device: a residual r on a node with free CPU c is useful to every one-device
shape with share <= r and CPU <= c, and n wholly free cards are useful to every shape of up to n cards. Both are
cumulative sums of weights, so one node costs one look-up per device, in exact integer arithmetic.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3.2; quantisation as in their simulator,
github.com/hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/fgd_score.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import IntEnum
from functools import cache, lru_cache

import numpy as np

from millpond.scheduling.placement.arrays import MODEL_LIMIT, WHOLE_CARD_MILLI, Int64Array
from millpond.scheduling.placement.bid_price import VALUE_OF_CARD, slice_values
from millpond.scheduling.placement.mix import TypicalMix, TypicalShape
from millpond.scheduling.placement.shapes import ANY_MODEL

# Positions in the flat vector that kernels read: settings, then where each table begins and how wide it is.
SCORER, TOTAL_WEIGHT, BID_WEIGHT, GPU_WEIGHT, CPU_WEIGHT, SCARCITY_WEIGHT, LOAD_WEIGHT, SEED = range(8)
MODEL_CLASS_AT, RANK_AT, FLOOR_AT, VALUE_AT, SCARCITY_AT, LEVEL_AT, LEVEL_COUNT = range(8, 15)
SINGLE_AT, SINGLE_WIDTH, MULTI_AT, MULTI_WIDTH, NEEDS_AT, NEEDS_COUNT = range(15, 21)
_HEADER = 21
NEED_COMPUTE, NEED_MEMORY, NEED_SHARE = range(3)
NEED_COLUMNS = 3
MOST_NEEDS = 16
_STEPS = 100
_DIGITS = 40
# One step of the quantised fragmentation gradient in the units of the default score: chosen so that one milli of
# GPU (8,000 = a full node) and one milli of CPU (128,000) tie-break in whole numbers.
QUANTUM = 8_000_000


class Scorer(IntEnum):
    """The rules for choosing among the nodes that fit."""

    DEFAULT = 0
    FGD = 1
    BEST_FIT = 2
    DOT_PRODUCT = 3
    RANDOM = 4


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the terms of the default score, in units of one fragmentation quantum unless said otherwise.

    ``bid_price``: per card of value destroyed. ``gpu_left`` and ``cpu_left``: per 8 cards and per 128 cores left
    free on the node. ``scarcity``: per card taken of a model that constrained demand fills. ``load``: per card (or,
    for whole cards, per node) at full use.
    """

    bid_price: float = 200.0
    gpu_left: float = 1.6
    cpu_left: float = 0.4
    scarcity: float = 7.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class ScoreTables:
    """Look-up tables of one scorer under one mix.

    ``flat``: int64, all that kernels read, in one vector because every array argument of a compiled call costs time:
    the settings, then model_class (63,): models that the mix treats alike; size_rank (1001,): how many typical
    shares are <= r; quantum_floor (100,): least gradient of each step; slice_value (1001,): value of a residual;
    scarcity (63,): 0..1000 per model; cpu_levels (L,) ascending; single_weight (classes, L + 1, ranks + 1) and
    multi_weight (classes, L + 1, most cards + 1): summed weights; needs (n, 3): what typical work has to have free on a
    card, compute and device memory, and its share of the compute that is asked for, in thousandths.
    """

    scorer: Scorer
    seed: int
    slice_value: Int64Array
    scarcity: Int64Array
    needs: Int64Array
    flat: Int64Array


def build_tables(
    mix: TypicalMix,
    scorer: Scorer = Scorer.DEFAULT,
    weights: Weights | None = None,
    *,
    capacity_milli: Mapping[int, int] | None = None,
    seed: int = 0,
) -> ScoreTables:
    """Tables for ``scorer`` under ``mix``.

    ``capacity_milli``: compute by device model, which scarcity is measured against. Costs 0.05 to 0.5 s for the
    bid price; build once per change of the mix.
    """
    weights = weights or Weights()
    with_devices = [shape for shape in mix.shapes if shape.devices > 0]
    total = sum(shape.weight for shape in mix.shapes)
    model_class, class_models = _model_classes(with_devices)
    cpu_levels = np.array(sorted({shape.cpu_milli for shape in with_devices}), dtype=np.int64)
    sizes = np.array(sorted({s.compute_milli for s in with_devices if s.devices == 1}), dtype=np.int64)
    single, multi = _weights_that_fit(with_devices, class_models, cpu_levels, sizes)
    needs = memory_needs(mix.needs_milli)
    settings = {
        SCORER: int(scorer),
        TOTAL_WEIGHT: total,
        BID_WEIGHT: round(weights.bid_price * QUANTUM / VALUE_OF_CARD),
        GPU_WEIGHT: round(weights.gpu_left * QUANTUM / 8_000),
        CPU_WEIGHT: round(weights.cpu_left * QUANTUM / 128_000),
        SCARCITY_WEIGHT: round(weights.scarcity * QUANTUM / 1_000_000),
        LOAD_WEIGHT: round(weights.load * QUANTUM / 1_000),
        SEED: seed,
        LEVEL_COUNT: len(cpu_levels),
        SINGLE_WIDTH: single.shape[2],
        MULTI_WIDTH: multi.shape[2],
        NEEDS_COUNT: len(needs),
    }
    slice_value = slice_values(mix.slices)
    scarcity = model_scarcity(mix.demand_milli, capacity_milli or {})
    size_rank = np.searchsorted(sizes, np.arange(WHOLE_CARD_MILLI + 1), side="right").astype(np.int64)
    parts = {
        MODEL_CLASS_AT: model_class,
        RANK_AT: size_rank,
        FLOOR_AT: quantum_floors(total),
        VALUE_AT: slice_value,
        SCARCITY_AT: scarcity,
        LEVEL_AT: cpu_levels,
        SINGLE_AT: single,
        MULTI_AT: multi,
        NEEDS_AT: needs,
    }
    return ScoreTables(scorer, seed, slice_value, scarcity, needs, _flattened(settings, parts))


def _weights_that_fit(
    shapes: Sequence[TypicalShape], class_models: Sequence[int], cpu_levels: Int64Array, sizes: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The weight of all shapes that fit, by class of models, level of CPUs, and size on one card or count of cards."""
    most_cards = max((shape.devices for shape in shapes), default=1)
    single = np.zeros((len(class_models), len(cpu_levels) + 1, len(sizes) + 1), dtype=np.int64)
    multi = np.zeros((len(class_models), len(cpu_levels) + 1, most_cards + 1), dtype=np.int64)
    for shape in shapes:
        from_cpu = int(np.searchsorted(cpu_levels, shape.cpu_milli)) + 1
        for index, model in enumerate(class_models):
            if not shape.model_mask >> model & 1:
                continue
            if shape.devices == 1:
                from_rank = int(np.searchsorted(sizes, shape.compute_milli)) + 1
                single[index, from_cpu:, from_rank:] += shape.weight
            else:
                multi[index, from_cpu:, shape.devices :] += shape.weight
    return single, multi


def memory_needs(needs_milli: Mapping[tuple[int, int], int]) -> Int64Array:
    """The ``MOST_NEEDS`` largest needs with their shares in thousandths; int64 of shape (n, 3)."""
    total = sum(needs_milli.values())
    largest = sorted(needs_milli.items(), key=lambda need: (-need[1], need[0]))[:MOST_NEEDS]
    rows = [(compute, memory, 1000 * milli // total) for (compute, memory), milli in largest]
    return np.array(rows, dtype=np.int64).reshape(-1, NEED_COLUMNS)


@lru_cache(maxsize=16)
def quantum_floors(total_weight: int) -> Int64Array:
    """Least gradient that reaches each step of int(100 * sigmoid(gradient / 1000)); int64 of shape (100,).

    The gradient is an integer, milli times ``total_weight``. Step q begins at 1000 * total * ln(q / (100 - q)).
    """
    floors = np.full(_STEPS, -(1 << 62), dtype=np.int64)
    with localcontext() as context:
        context.prec = _DIGITS
        for step, log_odds in enumerate(_log_odds(), start=1):
            floors[step] = int((1000 * total_weight * log_odds).to_integral_value(rounding="ROUND_CEILING"))
    return floors


@cache
def _log_odds() -> tuple[Decimal, ...]:
    """ln(q / (100 - q)) of each step q from 1; logarithms of so many digits are slow."""
    with localcontext() as context:
        context.prec = _DIGITS
        return tuple((Decimal(step) / Decimal(_STEPS - step)).ln() for step in range(1, _STEPS))


def model_scarcity(demand_milli: Mapping[int, int], capacity_milli: Mapping[int, int]) -> Int64Array:
    """How far constrained demand alone fills each model, 0..1000; int64 of shape (63,).

    Demand is scaled to the capacity of all models together, and what several models may serve is shared among
    them in proportion to their capacity.
    """
    scarcity = np.zeros(MODEL_LIMIT, dtype=np.int64)
    capacity, demand = sum(capacity_milli.values()), sum(demand_milli.values())
    if not capacity or not demand:
        return scarcity
    wanted = dict.fromkeys(capacity_milli, 0.0)
    for mask, milli in sorted(demand_milli.items()):
        able = [model for model in capacity_milli if mask >> model & 1]
        room = sum(capacity_milli[model] for model in able)
        if mask == ANY_MODEL or len(able) == len(capacity_milli) or not room:
            continue
        for model in able:
            wanted[model] += milli * capacity / demand * capacity_milli[model] / room
    for model, milli_wanted in wanted.items():
        if capacity_milli[model]:
            scarcity[model] = min(round(1000 * milli_wanted / capacity_milli[model]), 1000)
    return scarcity


def _flattened(settings: Mapping[int, int], parts: Mapping[int, Int64Array]) -> Int64Array:
    header = np.zeros(_HEADER, dtype=np.int64)
    for position, value in settings.items():
        header[position] = value
    end = _HEADER
    for position, part in parts.items():
        header[position] = end
        end += part.size
    return np.concatenate([header, *(part.ravel() for part in parts.values())])


def _model_classes(shapes: list[TypicalShape]) -> tuple[Int64Array, list[int]]:
    """Class of every model, shape (63,), and one model of each class: alike are those that all shapes treat so."""
    classes: dict[tuple[bool, ...], int] = {}
    first_of: list[int] = []
    of_model = np.zeros(MODEL_LIMIT, dtype=np.int64)
    for model in range(MODEL_LIMIT):
        accepted = tuple(bool(shape.model_mask >> model & 1) for shape in shapes)
        if accepted not in classes:
            classes[accepted] = len(first_of)
            first_of.append(model)
        of_model[model] = classes[accepted]
    return of_model, first_of
