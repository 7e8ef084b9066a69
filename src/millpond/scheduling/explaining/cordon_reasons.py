"""Jobs that would fit if nodes were open: which nodes those are, why they are closed, and when they are open again.

Tried on the ledger like a remedy: closed nodes are opened, those first that open first, until the job fits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from millpond.model.amounts import seconds_text
from millpond.model.hardware.card_layouts import layout_text
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Cordon
from millpond.model.reasons import Cause, Filter, Reason, StartEstimate
from millpond.scheduling.cycle.claims import Claims, both
from millpond.scheduling.explaining.node_names import MOST_NAMES, node_names
from millpond.scheduling.nodes.cordon import power_text, stays_until
from millpond.scheduling.nodes.layout_planner import LEAST_WAIT_S, could_use, has_waited
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

MOST_TRIALS = 8
"""Instants of opening that are tried one by one; all later ones are tried together."""

MOST_CARDS_TRIED = 64
"""Of so many closed cards each is tried whether a job needs it."""


@dataclass(frozen=True, slots=True)
class _CordonedNode:
    """A node that a job may not use now.

    Attributes:
        opens_at: when it may; ``NEVER`` when the node has to be opened by hand.
        wake_rank: of one that is closed for its power.
        closed: it is closed now; otherwise it closes too soon for the job, whether it is on or off.
    """

    opens_at: float
    wake_rank: int
    index: int
    name: str
    closed: bool


def closed_for(
    state: State, claims: Claims, record: JobRecord, fits: Callable[[NodeMask | None], list[int]]
) -> Reason | None:
    """The reason of a job that closed nodes keep waiting; None when opening them all would not help it.

    Args:
        fits: the nodes that the job would start on under a mask; empty when it could not.
    """
    shut = _shut_nodes(state, record)
    groups = [list(group) for _, group in groupby(shut, key=lambda each: (each.opens_at, each.wake_rank))]
    if len(groups) > MOST_TRIALS:
        groups[MOST_TRIALS:] = [[each for group in groups[MOST_TRIALS:] for each in group]]
    # Room that is kept for others counts only where closed nodes alone would not help.
    for others in (True,) if claims.mask_of_others(record) is None else (True, False):
        opened: list[_CordonedNode] = []
        fit = partial(_fit_with, state, claims, record, fits=fits, others=others)
        for group in groups:
            opened += group
            nodes = fit(opened)
            if used := [each for each in opened if each.index in nodes]:
                return _reason(state, _as_few_as_do(used, fit))
    return None


def _as_few_as_do(
    used: Sequence[_CordonedNode], fit: Callable[[Sequence[_CordonedNode]], list[int]]
) -> Sequence[_CordonedNode]:
    """The first of these nodes, as many as a job needs beside those that are open."""
    return used[: bisect_left(range(len(used)), True, lo=1, key=lambda count: bool(fit(used[:count])))]


def closed_cards_for(
    state: State, claims: Claims, record: JobRecord, fits: Callable[[NodeMask | None], list[int]]
) -> Reason | None:
    """The reason of a job that would fit if single cards of its pool that are closed were open: of those it needs.

    Args:
        fits: as for ``closed_for``.
    """
    cluster, mask = state.cluster, claims.mask(record)
    shut = [
        (node.name, device)
        for node in cluster.hardware_index.nodes_of(record.job.pool)
        for device in node.devices
        if device.card in cluster.closed_cards and device.health is DeviceHealth.OK
    ]
    mark = state.journal.begin()
    for node, device in shut:
        cluster.set_card_closed(node, device.card, False)
    fitting = {cluster.node_name(index) for index in fits(mask)} if shut else set()
    used = [(node, device) for node, device in shut if node in fitting]
    for node, device in shut:
        if node not in fitting:
            cluster.set_card_closed(node, device.card, True)
    for node, device in used[::-1] if len(used) <= MOST_CARDS_TRIED else ():
        cluster.set_card_closed(node, device.card, True)
        if fits(mask):
            used.remove((node, device))
        else:
            cluster.set_card_closed(node, device.card, False)
    state.journal.rollback(mark)
    if not used:
        return None
    named = [f"card {device.index} of {node}" for node, device in used[:MOST_NAMES]]
    more = f" and {len(used) - MOST_NAMES} more" if len(used) > MOST_NAMES else ""
    closures = filter(None, (state.card_cordons.closure(device.card) for _, device in used))
    why = dict.fromkeys(map(closure_text, closures))
    are = "is" if len(used) == 1 else "are"
    return Reason(
        Cause.NODES_CLOSED,
        f"it would fit with {', '.join(named)}{more}, which {are} {'; '.join(why)}",
        (("cards", len(used)),),
        blocked_by=used[0][0],
    )


def being_divided(state: State, card: str) -> Reason:
    """The reason of a job for which a card is being divided."""
    change = state.card_cordons.layout_changes[card]
    node = state.cluster.node_named(change.node)
    index = next((device.index for device in node.devices if device.card == card), -1) if node is not None else -1
    text = f"it waits for card {index} of {change.node} to be divided into {layout_text(change.layout)}"
    return Reason(Cause.CARD_BEING_DIVIDED, text, blocked_by=change.node)


def may_be_divided(state: State, record: JobRecord) -> str:
    """That a card may be divided for a job which none of its pool could hold as it is; empty where that is not so."""
    index = state.cluster.hardware_index
    cards = [(card, layout) for card in index.divisible_in(record.job.pool) for layout in card.layouts]
    if not cards:
        return ""
    nodes = index.nodes_of(record.job.pool)
    if could_use(record, [device for node in nodes for device in node.devices if device.health is DeviceHealth.OK]):
        return ""
    able = [(card, layout) for card, layout in cards if could_use(record, layout.devices)]
    if not able:
        return ""
    last = [(state.card_cordons.layout_changes.get(card.card), card.stay_s) for card, _ in able]
    stays = all(change is not None and state.now - change.since < stay_s for change, stay_s in last)
    when = "" if has_waited(state, record) else f" and it has waited for {seconds_text(LEAST_WAIT_S)}"
    when = f" and has been as it is for {seconds_text(able[0][0].stay_s)}" if stays else when
    return f"; a card is divided into {able[0][1].text} for it once one is idle{when}"


def closure_text(closure: Cordon) -> str:
    """By whom something is closed, and why: ``closed by ada (a fan is loud)``."""
    by = f" by {closure.by}" if closure.by else ""
    return f"closed{by}" + (f" ({closure.reason})" if closure.reason else "")


def name_closed(state: State, claims: Claims, record: JobRecord, counts: dict[Filter, int]) -> None:
    """Count closed nodes, and those that close too soon for a job, by words of their own."""
    nodes = [state.cluster.node_named(name) for name in state.cluster.closed]
    closed = sum(node is not None and node.schedulable for node in nodes)
    counts[Filter.UNSCHEDULABLE] = counts.get(Filter.UNSCHEDULABLE, 0) - closed
    counts[Filter.CLOSED] = closed
    closing = claims.mask_of_closings(record)
    if closing is not None:
        arrays, count = state.cluster.arrays, state.cluster.arrays.node_count
        pool = state.cluster.words.shape_of(record.job.roles[0].request, record.job.pool).pool
        there = (arrays.node_usable[:count] != 0) & (arrays.pool[:count] == pool)
        if record.job.only_on:
            there &= state.cluster.hardware_index.nodes_selected(record.job.only_on) != 0
        too_soon = int((there & (closing[:count] == 0)).sum())
        counts[Filter.KEPT_FOR_OTHERS] = counts.get(Filter.KEPT_FOR_OTHERS, 0) - too_soon
        counts[Filter.CLOSES_TOO_SOON] = too_soon


def _shut_nodes(state: State, record: JobRecord) -> list[_CordonedNode]:
    """Nodes of the job's pool that are closed, or close before it would end; those first that open, or boot, first."""
    cluster, cordons = state.cluster, state.cordons
    length = stays_until(record, state.ordering.time_left, state.now) - state.now
    found = []
    closing = dict.fromkeys(cordons.closing(cordons.reach(record, state.ordering.time_left, state.now)))
    for name in closing | dict.fromkeys(cluster.closed):
        node = cluster.node_named(name)
        if node is not None and node.schedulable and node.pool == record.job.pool:
            opens_at = cordons.earliest(name, state.now, length)
            rank = power.wake_rank if (power := cordons.power.get(name)) is not None else 0
            found.append(_CordonedNode(opens_at, rank, cluster.node_index[name], name, name not in closing))
    return sorted(found, key=lambda each: (each.opens_at, each.wake_rank, each.index))


def _fit_with(
    state: State,
    claims: Claims,
    record: JobRecord,
    opened: Sequence[_CordonedNode],
    fits: Callable[[NodeMask | None], list[int]],
    *,
    others: bool,
) -> list[int]:
    """Where the job would start if these nodes were open and stayed so.

    Args:
        others: it keeps off room that is kept for others.
    """
    closing = claims.mask_of_closings(record)
    if closing is not None:
        closing = closing.copy()
        closing[[each.index for each in opened]] = 1
    mark = state.journal.begin()
    for each in opened:
        state.cluster.set_closed(each.name, False)
    nodes = fits(both(claims.mask_of_others(record), closing) if others else closing)
    state.journal.rollback(mark)
    return nodes


def _reason(state: State, used: Sequence[_CordonedNode]) -> Reason:
    cordons = state.cordons
    if down := [each for each in used if each.closed and each.name in cordons.powered_down(state.now)]:
        return _power_reason(state, down)
    parts = []
    for closed in (True, False):
        some = [each for each in used if each.closed is closed]
        if not some:
            continue
        why = dict.fromkeys(
            closure.reason
            for each in some
            for closure in [(cordons.at if closed else cordons.next_of)(each.name, state.now)]
            if closure is not None and closure.reason
        )
        one = len(some) == 1
        how = ("is closed" if one else "are closed") if closed else ("closes" if one else "close") + " too soon for it"
        names = node_names([each.name for each in some])
        parts.append(f"{names}, which {how}" + (f" ({'; '.join(why)})" if why else ""))
    opens_at = max(each.opens_at for each in used)
    return Reason(
        Cause.NODES_CLOSED,
        f"it would fit on {', and on '.join(parts)}",
        (("nodes", len(used)),),
        blocked_by=used[0].name,
        opens_at=None if opens_at == NEVER else opens_at,
    )


def _power_reason(state: State, down: Sequence[_CordonedNode]) -> Reason:
    """The reason of a job that waits for nodes which were switched off, or on again."""
    why = dict.fromkeys(power_text(state.cordons.power[each.name], state.now) for each in down)
    one = len(down) == 1
    names = node_names([each.name for each in down])
    text = f"it waits for {'node' if one else 'nodes'} {names}, which {'is' if one else 'are'} {'; '.join(why)}"
    start = _joined(state, down)
    return Reason(Cause.NODES_OFF, text, (("nodes", len(down)),), blocked_by=down[0].name, start=start)


def _joined(state: State, down: Sequence[_CordonedNode]) -> StartEstimate | None:
    """The start of a job that has room once these nodes have joined; None where one is not on its way, or late."""
    ready = [state.cordons.power[each.name].ready_at or 0.0 for each in down]
    return (
        StartEstimate(max(ready), None, "what boots for it should have joined then") if min(ready) > state.now else None
    )
