"""The whole scheduler as plain data, and back: for restarts, forks and what-if questions.

What can be derived (cached scores, the ledger's free amounts, queue usage) is not written; holdings are, and the ledger
is rebuilt by taking them again. Nodes keep their order, so that ties fall as before.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.errors import InvalidInputError
from millpond.model.reasons import Cause
from millpond.scheduling.copies.record_plain import (
    place_in,
    place_plain,
    record_in,
    record_plain,
    rights_in,
    rights_plain,
)
from millpond.scheduling.cycle.claims import Claim, Claims
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.cycle.reservations import Reservation
from millpond.scheduling.ordering.queueing import new_record
from millpond.scheduling.records import JobRecord
from millpond.scheduling.settings import PreemptionCost, Settings
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.queue_changes import set_limit, set_queues

FORMAT = 4

_SAME_CLAIMS = {"claims": "as before"}
"""Stands for claims that have not changed."""


def take(state: State, placer: Placer, claims: Claims) -> dict[str, Any]:
    """Everything that decisions depend on."""
    cluster, queues = state.cluster, state.queues
    claims.prune()
    return {
        "format": FORMAT,
        "settings": _settings_plain(state.settings),
        "now": state.now,
        "decided_at": state.decided_at,
        "next_decision": state.next_decision,
        "next_sequence": state.next_sequence,
        "pools": [to_plain(pool) for pool in cluster.pools.values()],
        "queues": [to_plain(queue) for queue in queues.queues()],
        "limits": [to_plain(limit) for limit in state.limits.by_account.values()],
        "names": cluster.words.plain(),
        "reserved": state.reserved.snapshot(),
        "cordons": state.cordons.snapshot(),
        "card_cordons": state.card_cordons.snapshot(),
        "holds": {cause.value: text for cause, text in state.holds.items()},
        "nodes": [to_plain(node) for node in cluster.nodes if node is not None],
        "loads": cluster.loads.snapshot(),
        "node_contents": cluster.contents.snapshot(),
        "jobs": [record_plain(state, record) for record in state.jobs.values()],
        "running": list(state.running),
        "suspended": list(state.suspended),
        "growing": list(state.growing),
        "roster_width": state.roster.width,
        "fresh": [record.id for record in state.fresh],
        "fetch_waits": dict(state.fetch_waits),
        "prefetches_tried": {
            job: nodes
            for job, nodes in state.prefetches.tried.items()
            if job in state.jobs and not state.jobs[job].state.ended
        },
        "outbox": [to_plain(decision) for decision in state.outbox],
        "pending": [to_plain(decision) for decision in state.pending.values()],
        "usage": state.usage.snapshot(),
        "preemption_budget": state.preemption_budget.snapshot(),
        "idle_time": state.idle_time.snapshot(),
        "ordering": state.ordering.snapshot(),
        "known_speeds": state.known_speeds.snapshot(),
        "recent_moves": state.moves.snapshot(),
        "looked_for_moves_at": state.moves.looked_at,
        "pair_speeds": state.pair_speeds.snapshot(),
        "caps": state.caps.snapshot(),
        "guests": list(state.guests),
        "held": state.held.snapshot(),
        "arrival_hours": state.arrivals.snapshot(),
        "mix": placer.mix.snapshot(),
        "affinities": {} if placer.affinities is None else placer.affinities.by_node,
        "rounds": placer.selector.rounds,
        "tables_stale": placer.tables_stale,
        "displaced_at": claims.displaced_at,
        "protects": state.protects,
        "unfinished": state.is_unfinished,
        "cells_stale": cluster.cells.stale,
        "cells_demoted": sorted(cluster.cells.demoted.items()),
        "deadlines": [list(deadline) for deadline in state.deadlines],
        "window_changes": _by_instant(state.window_changes),
        "unlent": sorted(state.entitlements.unlent),
        "paused": _by_instant(state.paused),
        "claims": take_claims(state, claims),
        "reservations": [
            [pool, kept.job, [cluster.node_name(node) for node in kept.nodes], kept.at, claims.is_fresh(pool)]
            for pool, kept in claims.reservations.items()
        ],
    }


def take_kept(state: State, claims: Claims, *, claims_changed: bool, nodes_changed: bool) -> list[Any]:
    """The claims, and behind them what else a cycle decided beside its decisions, where it did.

    The nodes of reservations, the starts of held jobs, the rights to cells of jobs of which these may have changed,
    who has begun to wait for nodes that hold what is needed, and what became of the events before it. Claims that have
    not changed are not written again, nor are such nodes.
    """
    kept = state.reserved.kept_plain() if nodes_changed else {}
    starts = [list(each) for each in state.held.chosen]
    state.held.chosen = []
    rights = [[job, rights_plain(state.running[job])] for job in sorted(state.rejudged) if job in state.running]
    demoted = sorted(state.cluster.cells.demoted.items())
    cells = {"rights": rights, "demoted": demoted} if rights else {}
    waits, state.begun_fetch_waits = state.begun_fetch_waits, {}
    verdicts = state.verdicts.plain()
    beside = {"reserved": kept, "starts": starts, "cells": cells, "fetch_waits": waits, "verdicts": verdicts}
    before = take_claims(state, claims) if claims_changed else [_SAME_CLAIMS]
    return [*before, *({name: found} for name, found in beside.items() if found)]


def take_claims(state: State, claims: Claims) -> list[Any]:
    """The claims alone: what a cycle decides beside its decisions."""
    return [
        [
            job,
            [place_plain(state, task, holding) for task, holding in claim.placed],
            claim.victims,
            claim.cause.value,
            claim.asks,
        ]
        for job, claim in claims.by_job.items()
    ]


def _by_instant(heap: Sequence[tuple[float, int, JobRecord]]) -> list[list[Any]]:
    """In order, which is a heap as well: without those that ended the heap itself may be none any more."""
    return [[at, record.id] for at, _, record in sorted(heap, key=itemgetter(0, 1)) if not record.state.ended]


def settings_of(plain: dict[str, Any]) -> Settings:
    """The settings a snapshot was taken under.

    Raises:
        InvalidInputError: the snapshot has another format.
    """
    if plain.get("format") != FORMAT:
        raise InvalidInputError(
            f"a snapshot of format {plain.get('format')!r}",
            f"this Millpond reads format {FORMAT}; use the one that wrote it",
        )
    known = _names(Settings)  # those of earlier versions had more
    fields = {name: value for name, value in plain["settings"].items() if name in known}
    fields["preemption_cost"] = PreemptionCost(**fields["preemption_cost"])
    fields["typical_mix"] = tuple((from_plain(request), count) for request, count in fields["typical_mix"])
    fields["tiresias_thresholds_gpu_s"] = tuple(fields["tiresias_thresholds_gpu_s"])
    fields["trial"] = from_plain(fields["trial"])
    return Settings(**fields)


def give(plain: dict[str, Any], state: State, placer: Placer, claims: Claims) -> None:
    """Fill freshly made parts with what ``take`` wrote."""
    state.now = plain["now"]
    state.decided_at = plain["decided_at"]
    state.next_decision, state.next_sequence = plain["next_decision"], plain["next_sequence"]
    _give_places(plain, state)
    _give_experience(plain, state, placer)
    with state.journal:
        _give_jobs(plain, state)
    state.arrivals.restore(plain["arrival_hours"], state.jobs, lambda job: new_record(state, job, 0, 0.0))
    state.outbox = [from_plain(item) for item in plain["outbox"]]
    for decision in map(from_plain, plain["pending"]):
        state.expect_answer(decision)
    state.prefetches.restore(plain["prefetches_tried"], state.pending.values())
    state.protects = plain["protects"]
    state.is_unfinished = plain["unfinished"]
    state.deadlines = [(at, job, attempt) for at, job, attempt in plain["deadlines"]]
    state.paused = _heap(plain["paused"], state)
    state.window_changes = _heap(plain["window_changes"], state)
    _give_claims(plain, state, claims)
    if plain["cells_stale"]:
        state.cluster.cells.changed()
    else:
        state.renew_cells(finds_rights=False)
    state.cluster.cells.demoted = dict(plain["cells_demoted"])
    placer.rebuild(stale=plain["tables_stale"])


def _give_places(plain: dict[str, Any], state: State) -> None:
    """Pools, queues and limits; machines, with what is known of them."""
    cluster = state.cluster
    for pool in plain["pools"]:
        cluster.set_pool(from_plain(pool))
    set_queues(state, [from_plain(queue) for queue in plain["queues"]])
    for limit in plain["limits"]:
        set_limit(state, from_plain(limit))
    cluster.words.restore(plain["names"])
    state.reserved.restore(plain["reserved"])
    state.cordons.restore(plain["cordons"])
    state.card_cordons.restore(plain["card_cordons"])
    state.entitlements.unlent = set(plain["unlent"])
    state.holds = {Cause(cause): text for cause, text in plain["holds"].items()}
    for node in plain["nodes"]:
        cluster.add_node(from_plain(node))
    cluster.loads.restore(plain["loads"])
    cluster.contents.restore(plain["node_contents"])


def _give_experience(plain: dict[str, Any], state: State, placer: Placer) -> None:
    """What was learnt from jobs: who used how much, how long they run, what they ask for."""
    state.preemption_budget.restore(plain["preemption_budget"])
    state.idle_time.restore(plain["idle_time"])
    state.usage.restore(plain["usage"])
    state.ordering.restore(plain["ordering"])
    state.known_speeds.restore(plain["known_speeds"])
    state.moves.restore(plain["recent_moves"])
    state.moves.looked_at = plain["looked_for_moves_at"]
    state.pair_speeds.restore(plain["pair_speeds"])
    state.caps.restore(plain["caps"])
    placer.mix.restore(plain["mix"])
    if placer.affinities is not None:
        placer.affinities.by_node = dict(plain["affinities"])
    placer.selector.rounds = plain["rounds"]


def _give_jobs(plain: dict[str, Any], state: State) -> None:
    """Jobs with what they hold, which takes it from the ledger and from quotas again."""
    for item in plain["jobs"]:
        record = record_in(state, item)
        state.jobs[record.id] = record
    state.running = {job: state.jobs[job] for job in plain["running"]}
    state.elastic.update((job, record) for job, record in state.running.items() if record.elastic)
    state.kept = {job: record for job, record in state.running.items() if record.kept is not None}
    state.suspended = {job: state.jobs[job] for job in plain["suspended"]}
    state.growing = {job: state.jobs[job] for job in plain["growing"]}
    state.guests = {job: state.jobs[job] for job in plain["guests"]}
    state.held.restore(plain["held"], state.jobs)
    state.fetch_waits = dict(plain["fetch_waits"])
    state.fresh = [state.jobs[job] for job in plain["fresh"] if job in state.jobs]
    state.roster.widen(plain["roster_width"])
    enrolled = {item["job"]["id"] for item in plain["jobs"] if item["on_roster"]}
    for record in state.running.values():
        holders = record.holding_tasks()
        state.charge(record, state.amounts.held(record, holders), 1)
        state.limits.count(record, 1)
        if record.id in enrolled:
            state.enroll(record)


def _give_claims(plain: dict[str, Any], state: State, claims: Claims) -> None:
    """What is kept for whom."""
    node_index = state.cluster.node_index
    claims.displaced_at = plain["displaced_at"]
    give_claims(plain["claims"], state, claims)
    for pool, job, nodes, at, is_fresh in plain["reservations"]:
        indices = tuple(node_index[name] for name in nodes if name in node_index)
        claims.keep(pool, Reservation(job, indices, at), is_fresh=is_fresh)


def give_nodes(plain: Sequence[Any], state: State) -> None:
    """Let these be the nodes that are kept for reservations, as ``take_kept`` wrote them."""
    for kept in (each["reserved"] for each in plain if isinstance(each, dict) and "reserved" in each):
        state.reserved.keep_again(kept)


def starts_in(plain: Sequence[Any]) -> list[tuple[str, float]]:
    """The jobs that a cycle chose starts for, and these, as ``take_kept`` wrote them."""
    written = (each["starts"] for each in plain if isinstance(each, dict) and "starts" in each)
    return [(job, start) for starts in written for job, start in starts]


def give_rights(plain: Sequence[Any], state: State) -> None:
    """Let running work be in cells by these rights, as ``take_kept`` wrote them."""
    for cells in (each["cells"] for each in plain if isinstance(each, dict) and "cells" in each):
        book = state.cluster.cells
        running = [(state.running[job], rights) for job, rights in cells["rights"] if job in state.running]
        book.give_again([right for record, rights in running for right in rights_in(record, rights)])
        book.demoted = dict(cells["demoted"])
        book.judged.update(record.id for record, _ in running)


def give_fetch_waits(plain: Sequence[Any], state: State) -> None:
    """Let these jobs wait for nodes that hold what they need, as ``take_kept`` wrote it, beside those that did."""
    for waits in (each["fetch_waits"] for each in plain if isinstance(each, dict) and "fetch_waits" in each):
        state.fetch_waits |= waits


def give_claims(plain: Sequence[Any], state: State, claims: Claims) -> None:
    """Let these be the claims, as ``take_kept`` wrote them."""
    if _SAME_CLAIMS in plain:
        return
    for job in list(claims.by_job):
        claims.drop(job)
    for job, places, victims, cause, asks in (each for each in plain if not isinstance(each, dict)):
        placed = [place_in(state, state.jobs[job], *place) for place in places]
        leaving = tuple((victim, attempt, tuple(tasks)) for victim, attempt, tasks in victims)
        claims.put(job, Claim(placed, leaving, Cause(cause), asks))


def _heap(by_instant: Sequence[Sequence[Any]], state: State) -> list[tuple[float, int, JobRecord]]:
    """As ``_by_instant`` wrote it, without jobs that are gone."""
    heap = [(at, state.jobs[job].sequence, state.jobs[job]) for at, job in by_instant if job in state.jobs]
    heapq.heapify(heap)
    return heap


def _names(record: type[Settings | PreemptionCost] | Settings | PreemptionCost) -> list[str]:
    return [field.name for field in fields(record)]


def _settings_plain(settings: Settings) -> dict[str, Any]:
    cost = settings.preemption_cost
    plain = {name: getattr(settings, name) for name in _names(settings)}
    plain["tiresias_thresholds_gpu_s"] = list(settings.tiresias_thresholds_gpu_s)
    plain["preemption_cost"] = {name: getattr(cost, name) for name in _names(cost)}
    plain["trial"] = to_plain(settings.trial)
    plain["typical_mix"] = [[to_plain(request), count] for request, count in settings.typical_mix]
    return plain
