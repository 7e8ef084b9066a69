"""Who shares cards with whom: a guest runs on the cards of a job that had them before, its host.

Both hold the cards, and both count for them in quotas; the ledger takes the cards once, until the last of the two has
left. A guest is not on the roster of running work: its going alone makes no room. Whoever takes the host off its cards
takes the guest too. The pair ends when one of the two ends, leaves its cards, or moves; the other goes on alone.
"""

from __future__ import annotations

from millpond.model.states import JobState
from millpond.scheduling.ledger.holdings import RUNNING, Holding
from millpond.scheduling.packing.pair_speeds import JobKind
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State


def begin_pair(state: State, guest: JobRecord, host: JobRecord, holding: Holding) -> None:
    """Take the cards of a host for a guest too; CPUs and memory of the machine are its own.

    Args:
        holding: of the guest, on the devices of the host, not taken yet.
    """
    shared = host.tasks[0].holding
    assert shared is not None, "a host runs"
    state.cluster.share(shared)
    state.cluster.share(holding)
    state.cluster.change(holding, RUNNING)
    guest.packed_with, host.packed_with = host.id, guest.id
    state.guests[guest.id] = guest


def end_pair(state: State, record: JobRecord) -> None:
    """A job has its cards no longer, or for itself; nothing happens if it shares none."""
    other = partner_of(state, record)
    for each in (record, other):
        if each is not None:
            each.packed_with = ""
            if state.guests.pop(each.id, None) is not None:
                _enroll(state, each)


def _enroll(state: State, record: JobRecord) -> None:
    """One that was a guest can be asked to leave for others as any other from now on."""
    if record.state is JobState.RUNNING and record.stop_trigger is None and record.id in state.running:
        state.enroll(record)


def partner_of(state: State, record: JobRecord) -> JobRecord | None:
    """The other job on its cards; None where it has them for itself."""
    return state.jobs.get(record.packed_with) if record.packed_with else None


def guest_of(state: State, host: JobRecord) -> JobRecord | None:
    """Who is on the cards of a job beside it; None where nobody is, or where it is the guest."""
    return state.guests.get(host.packed_with) if host.packed_with else None


def host_on(state: State, pool: str, holding: Holding) -> JobRecord | None:
    """The job that has exactly these cards, and shares them with nobody yet."""
    for record in state.running.values():
        held = record.tasks[0].holding if len(record.tasks) == 1 and not record.packed_with else None
        if held is not None and held.devices == holding.devices and record.job.pool == pool:
            return record
    return None


def held(record: JobRecord) -> Holding:
    """What the only task of a running job holds."""
    holding = record.tasks[0].holding
    assert holding is not None, "it runs"
    return holding


def kind_of(state: State, record: JobRecord, holding: Holding) -> JobKind:
    """What its speed on these cards is remembered by."""
    job = record.job
    return job.user, job.name, state.cluster.model_of(holding.devices[0]), len(holding.devices)
