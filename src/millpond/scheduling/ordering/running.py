"""Keys, and kernels over all running work: expected ends, keys now, who may be displaced, and when the next may be."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from millpond.scheduling.placement.arrays import FloatArray, Int64Array
from millpond.scheduling.placement.kernels import lean_kernel
from millpond.scheduling.reclaiming.roster import (
    MOST_MOVED_CARDS,
    SLOT_ALIVE,
    SLOT_ATTAINED,
    SLOT_BIN,
    SLOT_CARDS,
    SLOT_CHARGE,
    SLOT_CLASS,
    SLOT_DEBT,
    SLOT_EXACT,
    SLOT_LIMIT,
    SLOT_LOSS,
    SLOT_REACHED,
    SLOT_STARTED,
    SLOT_WAITED,
    SLOT_WEIGHT,
    SLOT_WHOLE,
)

NOBODY_MOVES = -1.0
"""A gate that no cost of moving passes."""

Seconds = TypeVar("Seconds", float, FloatArray)


def aged_key(left_s: Seconds, weight: Seconds, waited_s: Seconds, attained_s: Seconds, patience: float) -> Seconds:
    """The key of a job, or (jobs,) of many, from the seconds left, the weight of the size, the wait and the service."""
    return left_s * weight / (1.0 + waited_s / (patience * (attained_s + left_s)))


@lean_kernel
def bin_at(edges: FloatArray, service_s: float) -> int:
    """The bin that this much service lies in; ``edges`` (bins + 1,) ascending from 0."""
    low = 0
    high = edges.shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if edges[middle] <= service_s:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def caught_up_s(slots: FloatArray, slot: int, now: float) -> float:
    """For how long the present run of a job has added to its service: its debt is worked off first."""
    seconds: float = max(now - slots[SLOT_STARTED, slot] - slots[SLOT_DEBT, slot], 0.0)
    return seconds


@lean_kernel
def service_and_debt(slots: FloatArray, slot: int, now: float) -> tuple[float, float]:
    """What a running job has attained in all, and what is left of its debt; seconds both."""
    debt: float = max(slots[SLOT_DEBT, slot] - max(now - slots[SLOT_STARTED, slot], 0.0), 0.0)
    return slots[SLOT_ATTAINED, slot] + caught_up_s(slots, slot, now), debt


@lean_kernel
def count_outlived(slots: FloatArray, now: float, edges: FloatArray, outlived: FloatArray) -> None:
    """Add to ``outlived`` (classes, bins) the bins that running jobs have outlived since they were last counted."""
    last = outlived.shape[1] - 1
    for slot in range(slots.shape[1]):
        if slots[SLOT_ALIVE, slot] == 0.0:
            continue
        service = slots[SLOT_ATTAINED, slot] + caught_up_s(slots, slot, now)
        size = int(slots[SLOT_CLASS, slot])
        here = int(slots[SLOT_BIN, slot])
        while here < last and edges[here + 1] <= service:
            outlived[size, here] += 1.0
            here += 1
        slots[SLOT_BIN, slot] = here


@lean_kernel
def running_keys(
    slots: FloatArray,
    now: float,
    edges: FloatArray,
    ranks: FloatArray,
    patience: float,
    keys: FloatArray,
) -> None:
    """Fill ``keys`` (slots,) for running work as if it waited now.

    ``slots``: (19, slots), see ``reclaiming.roster``. ``ranks``: (classes, bins) seconds.
    """
    for slot in range(slots.shape[1]):
        if slots[SLOT_ALIVE, slot] == 0.0:
            keys[slot] = 0.0
            continue
        service, debt = service_and_debt(slots, slot, now)
        whole = slots[SLOT_WHOLE, slot]
        if whole < np.inf and (slots[SLOT_EXACT, slot] > 0.0 or service < whole):
            seconds = max(whole - service, 0.0)
        else:
            reached = max(service, slots[SLOT_REACHED, slot])
            seconds = ranks[int(slots[SLOT_CLASS, slot]), bin_at(edges, reached)] + reached - service
        seconds = max(seconds + debt, 1.0)
        keys[slot] = (
            seconds * slots[SLOT_WEIGHT, slot] / (1.0 + slots[SLOT_WAITED, slot] / (patience * (service + seconds)))
        )


@lean_kernel
def expected_ends(
    slots: FloatArray, now: float, edges: FloatArray, half_ended_at: FloatArray, ends: FloatArray
) -> None:
    """Fill ``ends`` (slots,) with when half of such work has ended, or a forecast or the time limit says so earlier.

    ``half_ended_at``: (classes, bins) seconds of service, see ``ordering.survival``.
    """
    for slot in range(slots.shape[1]):
        if slots[SLOT_ALIVE, slot] == 0.0:
            ends[slot] = np.inf
            continue
        service, debt = service_and_debt(slots, slot, now)
        if service < slots[SLOT_WHOLE, slot] < np.inf:
            left = slots[SLOT_WHOLE, slot] - service
        else:
            reached = max(service, slots[SLOT_REACHED, slot])
            left = max(half_ended_at[int(slots[SLOT_CLASS, slot]), bin_at(edges, reached)] - service, 0.0)
        ends[slot] = now + min(left, max(slots[SLOT_LIMIT, slot] - service, 0.0)) + debt


@lean_kernel
def charge_of(slots: FloatArray, slot: int, now: float) -> float:
    """By how much more than the newcomer's the key of running work must exceed it, for what its preemption costs."""
    charge: float = slots[SLOT_CHARGE, slot] + slots[SLOT_LOSS, slot] * caught_up_s(slots, slot, now)
    return charge


@lean_kernel
def preemption_costs(slots: FloatArray, now: float, per_cost: float, least_size: float, costs: FloatArray) -> None:
    """Fill ``costs`` (slots,) with the card-seconds that ending each takes of the budget, or fewer.

    ``per_cost``: what a charge has for each. ``least_size``: work of no more cards is charged for more than it has.
    """
    for slot in range(slots.shape[1]):
        costs[slot] = charge_of(slots, slot, now) / per_cost if slots[SLOT_CARDS, slot] > least_size else 0.0


@lean_kernel
def movable_from(
    slots: FloatArray, now: float, most: float, gate: float, least_size: float, rounding: float, keys: FloatArray
) -> None:
    """Fill ``keys`` (slots,) with from which key for each card of a job each may be moved aside for it; or infinity.

    Args:
        most: the highest charge.
        gate: a charge may be so many times such a key for each card moved.
        least_size: work counts as of so many cards at least.
        rounding: the part by which a key may be too low.
    """
    for slot in range(slots.shape[1]):
        charge, size = charge_of(slots, slot, now), slots[SLOT_CARDS, slot]
        if charge > most or size > MOST_MOVED_CARDS:
            keys[slot] = np.inf
        else:
            keys[slot] = charge / (gate * max(size, least_size)) * (1.0 - rounding)


@lean_kernel
def displaced_below(
    slots: FloatArray, now: float, keys: FloatArray, most: float, rounding: float, below: FloatArray
) -> None:
    """Fill ``below`` (slots,) with the bounds below which newcomers displace running work; -inf where that costs more.

    ``most``: the highest charge. ``rounding``: the part of its key by which a bound may be too high.
    """
    for slot in range(slots.shape[1]):
        charge = charge_of(slots, slot, now)
        below[slot] = keys[slot] - charge + rounding * keys[slot] if charge <= most else -np.inf


@lean_kernel
def displaceable(
    slots: FloatArray,
    now: float,
    keys: FloatArray,
    open_to_it: Int64Array,
    above: float,
    gate: float,
    most: float,
    part: float,
    harm: FloatArray,
    move_harm: FloatArray,
) -> tuple[bool, bool]:
    """Fill ``harm`` and ``move_harm`` (slots,) for a waiting job; returns whether any may be ended, and moved.

    They are infinite before, and stay so for those that may not be.

    Args:
        keys: (slots,), of ``running_keys``; open_to_it: the slots of those who may be asked at all.
        above: the key above which work that costs nothing to preempt is displaced.
        gate: the most that preempting may cost per card where a job is moved instead.
        most: the most that preempting may cost.
        part: moving does so much of the harm of ending.
    """
    ended = False
    moved = False
    for slot in open_to_it:
        size = slots[SLOT_CARDS, slot]
        charge = charge_of(slots, slot, now)
        if charge > most:
            continue
        if keys[slot] > above + charge:
            harm[slot] = size / max(keys[slot], 1e-9)
            ended = True
        elif size <= MOST_MOVED_CARDS and charge <= gate * size:
            move_harm[slot] = part * (size / max(keys[slot], 1e-9))
            moved = True
    return ended, moved


@lean_kernel
def soonest_displaceable(
    slots: FloatArray,
    now: float,
    edges: FloatArray,
    ranks: FloatArray,
    patience: float,
    threshold: float,
    rise: float,
) -> float:
    """Seconds from ``now`` until the key of some running job of guessed length exceeds what displaces it; or infinity.

    ``threshold``: the key above which work that costs nothing to preempt is displaced.
    ``rise``: the rank has to rise by this factor at least, so that the same job does not count again and again.
    """
    soonest = np.inf
    bins = ranks.shape[1]
    for slot in range(slots.shape[1]):
        if slots[SLOT_ALIVE, slot] == 0.0 or slots[SLOT_EXACT, slot] > 0.0:
            continue
        service, debt = service_and_debt(slots, slot, now)
        if service < slots[SLOT_WHOLE, slot] < np.inf:
            soonest = min(soonest, slots[SLOT_WHOLE, slot] - service + debt)
            continue
        size = int(slots[SLOT_CLASS, slot])
        reached = max(service, slots[SLOT_REACHED, slot])
        here = bin_at(edges, reached)
        seconds = ranks[size, here] + reached - service
        ageing = 1.0 + slots[SLOT_WAITED, slot] / (patience * (service + seconds))
        limit = max((threshold + charge_of(slots, slot, now)) * ageing / slots[SLOT_WEIGHT, slot], rise * seconds)
        later = here + 1
        while later < bins and ranks[size, later] <= limit:
            later += 1
        if later < bins:
            soonest = min(soonest, edges[later] - service + debt)
    return soonest
