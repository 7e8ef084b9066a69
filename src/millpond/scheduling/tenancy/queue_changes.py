"""Queues and limits are defined, changed and removed while work runs: what runs is counted anew by what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def set_queues(state: State, queues: Sequence[Queue]) -> None:
    """Define or redefine queues, each after its parent. Work that runs goes on, with what they promise from now on.

    Raises:
        InvalidInputError: as for ``QueueTree.set_queues``.
    """
    counted = state.queues.counts_cards
    state.queues.set_queues(queues)
    state.limits.renew(_holders(state))
    _follow_counting(state, counted)
    state.protects = state.protects or any(queue.minimum_run_s for queue in queues)
    for record in state.running.values():
        if record.slot >= 0:
            state.roster.set_minimum_run(record, state.minimum_run_s(record))


def set_limit(state: State, limit: Limit) -> None:
    """Change what a user or a queue may hold."""
    counted = state.queues.counts_cards
    state.limits.set_limit(limit, _holders(state))
    _follow_counting(state, counted)


def remove_queue(state: State, name: str) -> None:
    """Forget a queue.

    Raises:
        NotFoundError, ConflictError: as for ``QueueTree.remove_queue``.
    """
    state.queues.remove_queue(name)
    set_limit(state, Limit("", name))


def jobs_of_queue(state: State, queue: str) -> int:
    """How many jobs of a queue wait, or hold something."""
    return sum(
        record.job.queue == queue and (not record.state.ended or record.id in state.running)
        for record in state.jobs.values()
    )


def _follow_counting(state: State, counted: bool) -> None:
    """Cards are counted by what they are from now on, or no longer, if they were not, or were, ``counted`` so."""
    if state.queues.counts_cards != counted:
        counts = _holders(state) if state.queues.counts_cards else ()
        state.queues.count_cards((record.queue, amount) for record, amount in counts)
        state.limits.recount(_holders(state))


def _holders(state: State) -> Iterator[tuple[JobRecord, Amount]]:
    """All jobs that hold something, with what they hold."""
    for record in state.running.values():
        yield record, state.amounts.held(record, record.holding_tasks())
