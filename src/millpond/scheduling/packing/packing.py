"""Jobs that find no room share the cards of others, in pools that want it (``Pool.packs``).

A job that waits may become the guest of a running one (``pairs``), if they are partners that make enough progress side
by side (``partners``), by what was measured (``pair_speeds``). Of all such pairs those are formed that promise most
together (``matching``). That comes before the ordering displaces anybody. For one that finds no partner either, running
jobs come together (``merging``).

``MEASURED_AFTER_S`` after a guest has begun, its pair is judged by what was measured since, and from then on whenever
that changes: if both together make less than ``LEAST_MEASURED``, or one is below its floor, the guest leaves and waits
again. One of which nothing was measured for ``UNMEASURED_S`` beside the other counts as one that makes no steps, so a
program that reports nothing, or what cannot be true, keeps no other from its cards. A guest also leaves as soon as both
were seen to take nearly all memory of a card, and when cards are idle which no job that waits can use: it has them for
itself then, until others need them.

Sources: Xiao et al., "Gandiva", OSDI 2018, section 3.2; Narayanan et al., "Heterogeneity-aware cluster scheduling
policies for deep learning workloads", OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from millpond.model.errors import InconsistentStateError
from millpond.model.reasons import Cause
from millpond.model.states import JobState
from millpond.scheduling import runs
from millpond.scheduling.cycle.claims import Claim, Claims, charge_placed
from millpond.scheduling.cycle.job_placement import Placed, Placer
from millpond.scheduling.cycle.starting import Starter
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration.migrations import Migrations
from millpond.scheduling.packing.matching import heaviest_matching
from millpond.scheduling.packing.merging import Merging
from millpond.scheduling.packing.pair_speeds import JobKind, PairExpectation
from millpond.scheduling.packing.pairs import begin_pair, held, host_on, kind_of, partner_of
from millpond.scheduling.packing.partners import (
    HOSTS_TRIED,
    jobs_alone,
    keep_floors,
    may_be_asked,
    may_share,
    packs,
    weight_of,
)
from millpond.scheduling.records import JobRecord
from millpond.scheduling.reserving.counted_reservations import admits_beside_reserved
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.windows import lending_ends, outlasts_lending

LEAST_MEASURED: Final = 1.05
"""A pair ends that was measured to make less together than so much of one job alone."""
MEASURED_AFTER_S: Final = 120.0
"""So long after its guest has begun a pair is judged."""
UNMEASURED_S: Final = 600.0
"""A program may take long until its first step."""
FULL_MEMORY: Final = 0.97
"""A pair ends that was seen to take so much of the memory of a card, before a program finds none."""
GUESTS_TRIED: Final = 16
"""So many of each line are matched in one cycle, with as many as ``HOSTS_TRIED``: a bound on work."""
MERGES_TRIED: Final = 4
"""For so many jobs that wait, others may be asked to come together in one cycle."""


class PairPacking:
    """Forms and ends pairs within one state."""

    def __init__(self, state: State, placer: Placer, claims: Claims, migrations: Migrations, starter: Starter) -> None:
        self._state = state
        self._placer = placer
        self._claims = claims
        self._migrations = migrations
        self._starter = starter
        self._merging = Merging(state, placer, claims)

    @property
    def is_wanted(self) -> bool:
        """Whether any pool wants it."""
        return self._state.cluster.packs and any(packs(self._state, pool) for pool in self._state.cluster.pools)

    # ---- pairs are formed ---------------------------------------------------------------------------------------

    def before_walk(self) -> None:
        """Let those share cards who would find no free ones, before they displace others."""
        if self.is_wanted:
            firsts = [line[0][2] for line in self._state.waiting.lines.values()]
            self._match([record for record in firsts if self._finds_no_room(record)])

    def after_walk(self, blocked: Sequence[JobRecord]) -> None:
        """Let those share cards who have found none; in each pool, make room for the first that cannot either."""
        if not blocked or not self.is_wanted:
            return
        expectation = self._match(blocked)
        made, tries = set[str](), MERGES_TRIED
        state = self._state
        for record in blocked:
            pool = record.job.pool
            may_try = record.line and pool not in made and packs(state, pool) and record.id not in self._claims.by_job
            if may_try and tries:
                tries -= 1
                if self._merging.make_room(record, expectation):
                    made.add(pool)

    def _finds_no_room(self, record: JobRecord) -> bool:
        """Whether one that could share cards would find no free ones now."""
        if not packs(self._state, record.job.pool) or not may_share(record):
            return False
        mark = self._state.journal.begin()
        placed = self._placer.place(record, self._claims.mask(record))
        self._state.journal.rollback(mark)
        return placed is None

    def _match(self, firsts: Sequence[JobRecord]) -> PairExpectation:
        """Form pairs of those that wait in the lines of some jobs; returns what was expected of pairs."""
        state, expectation = self._state, self._state.pair_speeds.expectation()
        for first in firsts:
            if not first.line or not packs(state, first.job.pool):
                continue
            guests = list(islice(self._guests(first), GUESTS_TRIED))
            alone = (host for host in jobs_alone(state, first) if host.gpu_milli == first.gpu_milli)
            hosts = list(islice(alone, HOSTS_TRIED)) if guests else []
            weights = [self._weights(expectation, guest, hosts) for guest in guests]
            for row, column in heaviest_matching(weights):
                self._begin(expectation, guests[row], hosts[column])
        return expectation

    def _guests(self, first: JobRecord) -> Iterator[JobRecord]:
        """Who may share cards of all that wait in a line, in its order."""
        state = self._state
        ends_at = lending_ends(state).get(first.job.pool)
        for _, _, record in state.waiting.lines[first.line]:
            if (
                may_share(record)
                and may_be_asked(state, record)
                and record.id not in self._claims.by_job
                and (ends_at is None or not outlasts_lending(state, record, ends_at))
                and admits_beside_reserved(state, record, record.amount)
            ):
                yield record
            if state.ordering.strict:
                return  # nobody passes the first

    def _weights(self, expectation: PairExpectation, guest: JobRecord, hosts: Sequence[JobRecord]) -> list[float]:
        """What a guest and each host are expected to make together; 0 where they may not share cards."""
        mask = self._placer.within_allowed(guest, guest.tasks, self._claims.mask(guest))
        return [
            weight_of(self._state, expectation, guest, host) if mask is None or mask[held(host).node] else 0.0
            for host in hosts
        ]

    def _begin(self, expectation: PairExpectation, guest: JobRecord, host: JobRecord) -> None:
        """Start a guest, if those before it in this cycle have left enough of its limits and of the node."""
        state, beside = self._state, held(host)
        shape = state.cluster.words.shapes_of(guest.demand)[0]
        placed: Placed = [(guest.tasks[0], state.cluster.holding(beside.node, shape, beside.devices))]
        is_within = state.entitlements.keeps_limits(guest, state.amounts.of_placed(guest, placed))
        if is_within and weight_of(state, expectation, guest, host):
            self._start(guest, host, placed)

    def begin_again(self, guest: JobRecord, placed: Placed) -> None:
        """Start a guest where a cycle started it.

        Raises:
            InconsistentStateError: no job has the cards for itself.
        """
        host = host_on(self._state, guest.job.pool, placed[0][1])
        if host is None:
            raise InconsistentStateError(f"job {guest.id!r} would share cards that no job has for itself")
        self._start(guest, host, placed)

    def _start(self, guest: JobRecord, host: JobRecord, placed: Placed) -> None:
        begin_pair(self._state, guest, host, placed[0][1])
        charge_placed(self._state, guest, placed)
        self._starter.start(guest, placed, Cause.SHARES)

    # ---- pairs end ----------------------------------------------------------------------------------------------

    def unpack(self) -> None:
        """Have the guests leave whose pairs do not pay, or fill the memory of a card, as was measured."""
        state = self._state
        for guest in list(state.guests.values()):
            host = partner_of(state, guest)
            if host is not None and guest.state is JobState.RUNNING and _is_memory_full(guest):
                _keep_apart(state, guest, host)
                runs.stop(state, guest, Trigger.ENDED_FOR_RETRY, Cause.CARD_MEMORY_FULL)
                continue
            if host is None or not is_judged(state, guest, host):
                continue
            speeds = state.pair_speeds.beside(*_kinds(state, guest, host))
            if speeds is not None and (sum(speeds) < LEAST_MEASURED or not keep_floors((guest, host), speeds)):
                runs.stop(state, guest, Trigger.ENDED_FOR_RETRY, Cause.UNPACKED)

    def spread(self) -> None:
        """Have guests leave for places where they have cards for themselves, which nobody who waits has taken."""
        state = self._state
        for guest in list(state.guests.values()):
            host = partner_of(state, guest)
            if host is None or not is_judged(state, guest, host):
                continue
            mark = state.journal.begin()
            placed = self._migrations.places.take(guest, self._claims.mask(guest))
            state.journal.rollback(mark)
            if placed is not None and may_be_asked(state, guest):
                self._claims.put(guest.id, Claim(placed, ((guest.id, guest.attempt, ()),), Cause.FITS))
                runs.stop(state, guest, Trigger.ENDED_FOR_RETRY, Cause.OWN_CARDS_FREE)

    def next_due(self) -> list[float]:
        """Instants behind the latest cycle at which pairs are judged first, and at which nothing more is waited for."""
        state = self._state
        begun = [guest.started_at for guest in state.guests.values() if guest.started_at is not None]
        due = [at + after_s for at in begun for after_s in (MEASURED_AFTER_S, UNMEASURED_S)]
        return [at for at in due if at > state.decided_at]


# ---- what is measured -----------------------------------------------------------------------------------------------


def is_judged(state: State, guest: JobRecord, host: JobRecord) -> bool:
    """Whether a pair runs for so long that its speeds count."""
    both_run = guest.state is JobState.RUNNING and host.state is JobState.RUNNING
    return both_run and guest.started_at is not None and state.now >= guest.started_at + MEASURED_AFTER_S


def note_speed(state: State, record: JobRecord) -> None:
    """A job was measured: what that says of jobs of its name on such cards, if it has them alone, without a cap."""
    measured = record.progress
    if measured is None or not measured.steps_per_s or measured.cap_w or record.packed_with:
        return
    if record.state is JobState.RUNNING and may_share(record):
        kind = kind_of(state, record, held(record))
        state.pair_speeds.note_alone(kind, record.id, measured.steps_per_s, measured.memory_mib)


def note_pairs(state: State) -> None:
    """What pairs that run for so long were measured to make."""
    for guest in state.guests.values():
        host = partner_of(state, guest)
        if host is None or not is_judged(state, guest, host):
            continue
        kinds = _kinds(state, guest, host)
        begun = guest.started_at or 0.0
        own, others = (_part(state, each, kind, begun) for each, kind in zip((guest, host), kinds, strict=True))
        if own is not None and others is not None:
            state.pair_speeds.note_pair(*kinds, (own, others))


def note_failure(state: State, record: JobRecord) -> None:
    """A job failed, for want of memory perhaps: two like it and the one beside it do not share cards again."""
    other = partner_of(state, record)
    if other is not None:
        _keep_apart(state, record, other)


def _keep_apart(state: State, one: JobRecord, other: JobRecord) -> None:
    state.pair_speeds.note_pair(*_kinds(state, one, other), (0.0, 0.0))


def _is_memory_full(guest: JobRecord) -> bool:
    """Whether its pair was seen to take nearly all memory of a card.

    What the host was measured to take may be of before, or beside another.
    """
    measured = guest.progress
    if measured is None or measured.attempt != guest.attempt or measured.memory_mib is None:
        return False
    return measured.memory_mib > FULL_MEMORY * min(held(guest).memory_mib)


def _kinds(state: State, guest: JobRecord, host: JobRecord) -> tuple[JobKind, JobKind]:
    return kind_of(state, guest, held(guest)), kind_of(state, host, held(host))


def _part(state: State, record: JobRecord, kind: JobKind, begun: float) -> float | None:
    """How fast a job is as a part of its speed alone, at most 1; None where it was not measured since then."""
    measured, alone = record.progress, state.pair_speeds.alone(kind)
    if measured is None or measured.at < begun or measured.steps_per_s is None or not alone:
        return 0.0 if state.now >= begun + UNMEASURED_S else None
    return min(measured.steps_per_s / alone, 1.0)
