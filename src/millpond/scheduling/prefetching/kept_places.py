"""What a waiting job needs is fetched to the nodes that are kept for it, before it starts there.

A claim (``cycle.claims``) is the very place of a job whose room is being made, or that moves: what its nodes lack is
fetched while those leave that are in the way, or the job leaves its old place. Suspended work has what it needs.

A reservation (``cycle.reservations``) says on which nodes the first waiting job of a pool should start, and when. What
such a node lacks of the job's contents is fetched once that is less than ``AHEAD_S`` away: not earlier, as reservations
move and disks are finite; nor where less than ``LEAST_HIDDEN`` of it would be over by then, as it may take the room of
what others start with; nor on a node that others have claimed.

Each node fetches for one job at a time, and for each job once; where what is kept for a job moves on, at most
``MOST_PER_NODE`` times as many nodes fetch as are kept for it. That running work keeps what it uses is left to engines.

A fetch ends early once its job runs elsewhere, or has ended. Nodes that report no contents, or no rate, fetch nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millpond.model.contents import Content
from millpond.model.decisions import Prefetch
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

AHEAD_S: Final = 3_600.0
LEAST_HIDDEN: Final = 0.5
MOST_PER_NODE: Final = 2


def prefetch_to_kept_places(state: State, claims: Claims) -> None:
    """Decide what is fetched ahead from now on, and what no longer."""
    if state.prefetches.under_way:
        _end_vain(state, claims)
    state.prefetches.forget_ended(state.jobs)
    if state.holds or not state.cluster.contents.of_nodes:
        return
    for job, claim in claims.by_job.items():
        if (record := state.jobs[job]).job.contents and record.state is not JobState.SUSPENDED:
            _fetch(state, record, claim.nodes, NEVER)
    for kept in claims.reservations.values():
        record = state.jobs[kept.job]
        if record.job.contents and kept.at - state.now <= AHEAD_S:
            claimed = {node for job, claim in claims.by_job.items() if job != kept.job for node in claim.nodes}
            _fetch(state, record, [node for node in kept.nodes if node not in claimed], kept.at)


def next_due(state: State, claims: Claims) -> list[float]:
    """When rooms that are kept for jobs come near enough."""
    due = [kept.at - AHEAD_S for kept in claims.reservations.values() if state.jobs[kept.job].job.contents]
    return [at for at in due if at > state.now]


def follow(state: State, decision: Prefetch) -> None:
    """Know of a decision that was taken."""
    if decision.contents:
        state.prefetches.begin(decision)
    else:
        give_up(state, decision.node)


def give_up(state: State, node: str) -> None:
    """No answer is waited for about what is being fetched to a node."""
    if (fetch := state.prefetches.end(node)) is not None:
        state.pending.pop(fetch.id)


def _end_vain(state: State, claims: Claims) -> None:
    for node, fetch in list(state.prefetches.under_way.items()):
        record, claim = state.jobs.get(fetch.job), claims.by_job.get(fetch.job)
        moves_there = claim is not None and state.cluster.node_index.get(node) in claim.nodes
        if record is None or record.state.ended or (_runs_elsewhere(record, node) and not moves_there):
            attempt = fetch.attempt if record is None else record.attempt
            _decide(state, Prefetch(state.next_id(), fetch.job, attempt, Cause.PREFETCH_OVER, node))


def _runs_elsewhere(record: JobRecord, node: str) -> bool:
    nodes = [task.placement.node for task in record.tasks if task.placement is not None]
    return bool(nodes) and node not in nodes


def _fetch(state: State, record: JobRecord, nodes: Sequence[int], at: float) -> None:
    """Have nodes, by index, fetch what they lack for a job; see ``_missing``."""
    book = state.prefetches
    tried = book.tried.get(record.id, [])
    left = MOST_PER_NODE * len(nodes) - len(tried)
    for index in nodes:
        node = state.cluster.nodes[index]
        if left <= 0:
            return
        if node is None or not node.schedulable or node.name in state.cluster.closed:
            continue
        if node.name in book.under_way or node.name in tried:
            continue
        if missing := _missing(state, record, node.name, at):
            left -= 1
            number = state.next_id()
            _decide(state, Prefetch(number, record.id, record.attempt + 1, Cause.PREFETCHED, node.name, missing))


def _missing(state: State, record: JobRecord, node: str, at: float) -> tuple[Content, ...]:
    """What a node is to fetch for a job that should start at an instant; nothing where it has told too little.

    Args:
        at: ``NEVER``: however long that takes.
    """
    contents = state.cluster.contents
    held = contents.of_nodes.get(node)
    if held is None or not held.fetch_rate:
        return ()
    missing = tuple(content for content in record.job.contents if content.name not in held.sizes)
    fetch_s = sum(contents.size_of(content) for content in missing) / held.fetch_rate
    return missing if at - state.now >= LEAST_HIDDEN * fetch_s else ()


def _decide(state: State, decision: Prefetch) -> None:
    follow(state, decision)
    state.emit(decision)
