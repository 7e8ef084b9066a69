"""Which jobs may share cards with which, and what that is expected to bring.

Both are of one queue and class of priority, train, have one task of as many whole cards, and a name to be known by. Who
comes to the cards of another saves itself on notice and may be asked to leave, as it may have to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import Final

from millpond.model.resources import CARD_MILLI
from millpond.model.sharing import ShareClass
from millpond.model.states import JobState
from millpond.model.workloads import CheckpointMode, Kind
from millpond.scheduling.packing.pair_speeds import JobKind, PairExpectation
from millpond.scheduling.packing.pairs import held, kind_of
from millpond.scheduling.records import JobRecord
from millpond.scheduling.state import State

LEAST_EXPECTED: Final = 1.1
"""Two jobs come together whose speeds, as parts of those alone, are expected to make so much in all."""
FLOORS: Final = {ShareClass.ONLINE: 0.95, ShareClass.NORMAL: 0.5, ShareClass.BACKFILL: 0.0}
"""What each job is left at least of its speed alone. On Gavel's trace 0.4 and 0.6 for normal work gave mean completion
times within 2 %."""
MOST_MEMORY: Final = 0.9
"""Of a card's memory two jobs need at most so much, by what they name and what was measured."""
HOSTS_TRIED: Final = 64
"""So many hosts are looked at for each line: a bound on work."""


def packs(state: State, pool: str) -> bool:
    """Whether jobs of a pool that find no room may share cards."""
    found = state.cluster.pools.get(pool)
    if found is None or not found.packs or found.suspends:
        return False
    return not state.replans and state.cluster.cells.allocator is None


def may_share(record: JobRecord) -> bool:
    """Whether a job could share cards at all."""
    job, request = record.job, record.job.roles[0].request
    return (
        len(record.tasks) == 1
        and not record.elastic
        and request.devices > 0
        and request.slice.compute_milli == CARD_MILLI
        and job.kind is Kind.TRAIN
        and bool(job.name)
        and not (job.reservation or job.spacing or job.keep_s or job.is_background)
    )


def may_be_asked(state: State, record: JobRecord) -> bool:
    """Whether a job loses little by being asked to leave, and nothing protects it from that."""
    job = record.job
    is_exempt = not job.preemptible or record.preemptions >= job.preemption_budget
    return job.checkpoint.mode is CheckpointMode.SIGNAL and not is_exempt and not state.minimum_run_s(record)


def jobs_alone(state: State, like: JobRecord) -> Iterator[JobRecord]:
    """Running work of the queue, class and pool of a job that could share its cards and has them for itself."""
    for record in state.running.values():
        if (
            record.state is JobState.RUNNING
            and record.slot >= 0
            and not record.packed_with
            and may_share(record)
            and record.queue == like.queue
            and record.job.pool == like.job.pool
            and record.job.priority == like.job.priority
        ):
            yield record


def weight_of(state: State, expectation: PairExpectation, guest: JobRecord, host: JobRecord) -> float:
    """What two jobs are expected to make together on the cards of a host; 0 where they should not share these."""
    holding = held(host)
    if guest.gpu_milli != host.gpu_milli or not _fits_beside(state, guest, host):
        return 0.0
    kinds = kind_of(state, guest, holding), kind_of(state, host, holding)
    if not all(map(state.pair_speeds.alone, kinds)):
        return 0.0
    if not _fit_in_memory(state, guest, host):
        return 0.0
    speeds = expectation.of(*kinds)
    return sum(speeds) if sum(speeds) >= LEAST_EXPECTED and keep_floors((guest, host), speeds) else 0.0


def why_shares_none(state: State, record: JobRecord) -> str:
    """Why a job that finds no room shares no cards; empty in pools that do not pack, and where it could share some."""
    if not packs(state, record.job.pool):
        return ""
    if not may_share(record):
        return "only training jobs with a name and one task of whole cards share cards"
    if not may_be_asked(state, record):
        return "it shares no cards, as it does not save itself on notice, or is protected from being asked to leave"
    alone, expectation = state.pair_speeds.alone, state.pair_speeds.expectation()
    alike = (host for host in jobs_alone(state, record) if host.gpu_milli == record.gpu_milli)
    hosts = [host for host in islice(alike, HOSTS_TRIED) if _fits_beside(state, record, host)]
    if not hosts:
        return "it shares no cards, as no job of its queue and class has as many for itself"
    if not (hosts := [host for host in hosts if alone(kind_of(state, record, held(host)))]):
        return "it shares no cards, as no job of its name was measured alone on such cards"
    if not (hosts := [host for host in hosts if alone(kind_of(state, host, held(host)))]):
        return "it shares no cards, as those who have them were not measured alone"
    if not (hosts := [host for host in hosts if _fit_in_memory(state, record, host)]):
        return "it shares no cards, as it is not known to fit into their memory beside another"
    if not any(weight_of(state, expectation, record, host) for host in hosts):
        return "it shares no cards, as it is expected to be too slow beside another"
    return ""


def keep_floors(jobs: Sequence[JobRecord], speeds: Sequence[float]) -> bool:
    """Whether each of these jobs is left enough of its speed alone."""
    return all(speed >= FLOORS[record.job.share_class] for record, speed in zip(jobs, speeds, strict=True))


def _fit_in_memory(state: State, guest: JobRecord, host: JobRecord) -> bool:
    """Whether what both need of the memory of the host's cards is known, and is little enough."""
    holding = held(host)
    needed = [_needed_mib(state, each, kind_of(state, each, holding)) for each in (guest, host)]
    return sum(needed) <= MOST_MEMORY * min(holding.memory_mib)


def _needed_mib(state: State, record: JobRecord, kind: JobKind) -> float:
    """How much memory a job needs of each of its cards: what it names, and more where more was measured.

    Infinite where it names none and none was measured: it may be all.
    """
    named, measured = record.job.roles[0].request.slice.memory_mib, state.pair_speeds.memory_mib(kind)
    if measured is None:
        return float(named) if named > 0 else inf
    return float(max(named, measured))


def _fits_beside(state: State, guest: JobRecord, host: JobRecord) -> bool:
    """Whether a guest may have such cards, and the node has all else that it asks for."""
    cluster, holding = state.cluster, held(host)
    models = guest.job.roles[0].request.models
    if models and cluster.model_of(holding.devices[0]) not in models:
        return False
    shape = cluster.words.shapes_of(guest.demand)[0]
    return cluster.has_room_beside_cards(holding.node, shape) and cluster.are_usable(holding.devices)
