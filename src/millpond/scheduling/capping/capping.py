"""Which power cap the cards of a run are kept at, where its job may take a little longer (``Job.max_slowdown``).

A job that is the first of its kind to be measured (``known_caps``) runs without a cap. Those after it begin at the cap
that needs least energy for a step and is fast enough, and try others while that is not settled: one at a time, for as
long as it takes to measure it. What a try costs is earned before: a run tries a cap once it is faster than it has to be
by ``TRIAL_LOSS_S`` in all, and runs without a cap for as long as it is slower than it may be.

Nothing is kept at a cap that is not measured there: whose steps or power are not known for ``PATIENCE_S``, or whose
cards were not kept at the cap. It runs to its end without one.

All cards of a run are whole, of one model, and kept at one cap, below that of their pool. Runs whose cards change in
number have none. All of it happens as a start is confirmed and as progress is measured, so it depends on events alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millpond.model.decisions import CapPower
from millpond.model.events import ProgressMeasured
from millpond.model.reasons import Cause
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState
from millpond.model.workloads import Kind
from millpond.scheduling.capping.capped_runs import CappedRun
from millpond.scheduling.capping.known_caps import CapKind, KnownCaps, TriedCap, with_tried
from millpond.scheduling.packing.pairs import partner_of
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

TRIAL_LOSS_S: Final = 40.0
"""What trying a cap may cost a run: two minutes at two thirds of its speed."""
PATIENCE_S: Final = 300.0
SLACK_W: Final = 1.0
"""Drivers round caps."""
_NO_CAP: Final = TriedCap(0, 0.0, 0.0)
_SHARED: Final = "cards that two jobs share have no power cap"


def begin_capping(state: State, record: JobRecord) -> None:
    """A run has its cards now, without a cap: those of its job may have been found one already.

    Cards that two jobs share have none: one of both may not bear it, and what each draws is not known.
    """
    host = partner_of(state, record)
    if host is not None:
        end_capping(state, host)
    if not record.job.max_slowdown:
        return
    caps = state.caps
    caps.prune(state.jobs)
    record.cap_w = 0.0
    found = _SHARED if host is not None else _cards_of(state, record)
    if isinstance(found, str):
        caps.runs.pop(record.id, None)
        return
    kind, range_w = found
    run = caps.runs[record.id] = CappedRun(record.attempt, kind, range_w, state.now, state.now)
    known = caps.known.of(kind, state.now)
    if known is not None:
        _keep_at(state, record, run, known.best(record.job.max_slowdown), Cause.CAP_CHOSEN)


def follow_progress(state: State, record: JobRecord, event: ProgressMeasured) -> None:
    """A run was measured: what that says of the cap of its cards, and which they are kept at from now on."""
    run = state.caps.runs.get(record.id)
    if run is None or run.attempt != event.attempt or run.is_over:
        return
    if record.state is not JobState.RUNNING or record.stop_trigger is not None:
        return
    is_kept = abs(event.cap_w - run.cap_w) <= SLACK_W
    if not event.steps_per_s or not event.power_w or not is_kept or record.packed_with:
        is_hopeless = bool(event.ignored or record.packed_with) or event.steps_per_s == 0.0
        if run.step and (is_hopeless or state.now - run.since > PATIENCE_S):
            end_capping(state, record)
        return
    run, known = _learn(state, record, run, event.steps_per_s, event.power_w / event.steps_per_s)
    chosen, cause = _choose(state, record, run, known)
    _keep_at(state, record, run, chosen, cause)


def end_capping(state: State, record: JobRecord) -> None:
    """A run goes on without a cap until its end; nothing happens if it could have none."""
    run = state.caps.runs.get(record.id)
    if run is not None and not run.is_over:
        _keep_at(state, record, replace(run, is_over=True), _NO_CAP, Cause.CAP_LIFTED)


def why_never_capped(state: State, record: JobRecord) -> str:
    """Why the cards of a running job that may take longer are kept at no cap in this run; empty of all others."""
    if not record.job.max_slowdown or record.state is not JobState.RUNNING or record.id in state.caps.runs:
        return ""
    found = _SHARED if record.packed_with else _cards_of(state, record)
    return found if isinstance(found, str) else ""


def carry_out_cap(state: State, record: JobRecord, decision: CapPower) -> None:
    """Keep the cards of a run at the cap that was decided for them."""
    record.cap_w = decision.cap_w
    state.emit(decision)


def _learn(
    state: State, record: JobRecord, run: CappedRun, steps_per_s: float, energy_j: float
) -> tuple[CappedRun, KnownCaps]:
    """What a measurement at the step of a run says of its kind, and of how far it is behind."""
    table, now = state.caps.known, state.now
    known = table.of(run.kind, now)
    measured = _NO_CAP if known is None else known.compared(run.step, steps_per_s, energy_j)
    if known is None or not known.is_like_before(measured):
        known = KnownCaps(record.id, now, steps_per_s, energy_j)
        if run.step:
            # How fast it is without a cap is to be seen yet; until then it counts as if it were as fast as with one.
            measured = _NO_CAP
    elif run.step:
        known = with_tried(known, measured)
    else:
        known = replace(known, steps_per_s=steps_per_s, energy_j=energy_j)
    table.put(run.kind, known)
    slowed = max(measured.slowdown, 0.0) if run.step else 0.0
    lost_s = run.lost_s + (now - run.since) * slowed / (1.0 + slowed)
    return replace(run, since=now, lost_s=lost_s), known


def _choose(state: State, record: JobRecord, run: CappedRun, known: KnownCaps) -> tuple[TriedCap, Cause]:
    """The step for a run that has just been measured, and why."""
    allowed = record.job.max_slowdown
    spare_s = allowed / (1.0 + allowed) * (state.now - run.began_at) - run.lost_s
    if spare_s < 0.0:
        return _NO_CAP, Cause.CAP_LIFTED
    step = known.untried(allowed) if known.first_job != record.id else 0
    if step and spare_s >= TRIAL_LOSS_S:
        return TriedCap(step, 0.0, 0.0), Cause.CAP_TRIED
    best = known.best(allowed)
    return best, Cause.CAP_CHOSEN if best.step else Cause.CAP_LIFTED


def _keep_at(state: State, record: JobRecord, run: CappedRun, chosen: TriedCap, cause: Cause) -> None:
    """Keep the cards of a run at a step from now on."""
    is_other = chosen.step != run.step
    run = replace(run, step=chosen.step)
    state.caps.runs[record.id] = replace(run, since=state.now) if is_other else run
    if is_other:
        number = state.next_id()
        carry_out_cap(
            state,
            record,
            CapPower(number, record.id, record.attempt, cause, run.cap_w, chosen.slowdown, chosen.saved),
        )


def _cards_of(state: State, record: JobRecord) -> tuple[CapKind, tuple[float, float]] | str:
    """What kind of job a run is, and the range of caps of its cards; in words why they cannot be kept at one."""
    job = record.job
    if job.kind is not Kind.TRAIN or not job.name or record.elastic:
        return "only training jobs with a name and a fixed size have a power cap"
    pool_w = dict(state.cluster.pools[job.pool].caps_w).get(job.share_class, float("inf"))
    models, least_w, most_w, cards = set[str](), 0.0, pool_w, 0
    for task in record.tasks:
        if task.holding is None or task.placement is None:
            continue
        if any(grant.compute_milli < CARD_MILLI for grant in task.placement.grants):
            return "a part of a card has no power cap of its own"
        for index in task.holding.devices:
            found = state.cluster.device(index)
            if found is None or found[1].cap_range_w is None:
                return "its cards have no power cap, as nothing says which caps they can have"
            models.add(found[1].model)
            least_w, most_w = max(least_w, found[1].cap_range_w[0]), min(most_w, found[1].cap_range_w[1])
            cards += 1
    if not cards:
        return "a job without cards has no power cap"
    if len(models) != 1 or not 0.0 < least_w < most_w:
        return "its cards have no power cap, as one cap does not suit all of them"
    return (job.user, record.queue, job.name, models.pop(), cards, most_w), (least_w, most_w)
