"""Advance reservations: who may make, change and cancel which, and as whom they are shown.

Whoever may submit to a queue may reserve within its guarantee; admins alone beyond it. One's own reservations may be
changed and cancelled, and those of others by the leads of the group that owns the queue, as its jobs may.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from millpond.model.errors import ConflictError, NotAllowedError
from millpond.model.events import ReservationCancelled, ReservationMade
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.scheduling.reserving.views import ReservationView
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.queues import place_for
from millpond.server.auth.roles import AccessTarget, Caller, Verb, absent, allows, demand
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.wording import local_time
from millpond.specs.api.pool.reservations import ReservationInfo, ReserveRequest

MOST_RESERVATIONS: Final = 50
"""Of one user who is no admin: each is looked at whenever work is placed."""


class Reservations:
    """Makes, changes, cancels and shows them."""

    def __init__(self, loop: Loop, accounts: Accounts) -> None:
        self._loop = loop
        self._accounts = accounts
        self._changing = asyncio.Lock()

    async def seen_by(self, caller: Caller) -> list[ReservationInfo]:
        """Those for the queues of the groups whose jobs the caller may read; an admin sees all of them."""
        found = await self._loop.ask(lambda core: [_info(view, core.now) for view in core.scheduler.reservations()])
        return [info for info in sorted(found, key=lambda each: (each.begin, each.name)) if self._sees(caller, info)]

    async def put(self, name: str, request: ReserveRequest, caller: Caller) -> ReservationInfo:
        """Make a reservation, or change the one of this name.

        Raises:
            NotAllowedError: the queue is another group's, or the caller may not go beyond its guarantee, or change it.
            NotFoundError, InvalidInputError, ConflictError: it cannot be agreed upon.
        """
        place_for(self._accounts, caller, request.queue)
        if request.beyond_guarantee and not caller.admin:
            raise NotAllowedError("a reservation beyond the guarantee of its queue", "ask an admin to make it")
        async with self._changing:
            views = await self._views()
            before = next((_info(view, now) for view, now in views if view.reservation.name == name), None)
            if before is None:
                _require_few(caller, [view.reservation for view, _ in views])
            else:
                if not self._sees(caller, before):
                    raise ConflictError(f"there is a reservation {name!r} already", "choose another name")
                demand(caller, Verb.CHANGE_JOBS, self.target(before))
            make = partial(_made, name, request, caller.user if before is None else before.by)
            await self._loop.ask(lambda core: _require_fit(core, make(time.time())))
            await self._loop.answered(self._loop.change_setting(lambda now: ReservationMade(now, make(now))))
            after = await self._find(name)
        assert after is not None or request.until <= time.time(), "it was made"
        return after or _info(ReservationView(make(time.time()), {}, 0, ()), time.time())

    async def cancel(self, name: str, caller: Caller) -> None:
        """Give a reservation up.

        Raises:
            NotFoundError: there is none of that name for them.
            NotAllowedError: it is not theirs.
        """
        async with self._changing:
            found = await self._find(name)
            if found is None or not self._sees(caller, found):
                raise absent("reservation", name)
            demand(caller, Verb.CHANGE_JOBS, self.target(found))
            cancelled = self._loop.change_setting(lambda now: ReservationCancelled(now, name, caller.user))
            await self._loop.answered(cancelled)

    def may_make(self, caller: Caller, queue: str) -> bool:
        """Whether the caller may reserve cards for a queue."""
        try:
            place_for(self._accounts, caller, queue)
        except NotAllowedError:
            return False
        return True

    async def _find(self, name: str) -> ReservationInfo | None:
        return next((_info(view, now) for view, now in await self._views() if view.reservation.name == name), None)

    async def _views(self) -> list[tuple[ReservationView, float]]:
        """All of them, with the scheduler's time."""
        return await self._loop.ask(lambda core: [(view, core.now) for view in core.scheduler.reservations()])

    def target(self, info: ReservationInfo) -> AccessTarget:
        """A reservation as what a verb is applied to: its maker's, and that of the group that owns its queue."""
        owner = self._accounts.group_of_queue(info.queue)
        return AccessTarget("reservation", info.name, info.by, frozenset(() if owner is None else (owner.name,)))

    def _sees(self, caller: Caller, info: ReservationInfo) -> bool:
        return caller.admin or allows(caller, Verb.READ_JOBS, self.target(info))


def _made(name: str, request: ReserveRequest, by: str, now: float) -> AdvanceReservation:
    return AdvanceReservation(
        name=name,
        queue=request.queue,
        cards=request.cards,
        begin=now if request.begin is None else request.begin,
        until=request.until,
        pool=request.pool,
        models=request.models,
        whole_nodes=request.whole_nodes,
        beyond_guarantee=request.beyond_guarantee,
        by=by,
    )


def _require_few(caller: Caller, present: Sequence[AdvanceReservation]) -> None:
    """Refuse one more of a user who has many.

    Raises:
        ConflictError: they have.
    """
    if not caller.admin and sum(each.by == caller.user for each in present) >= MOST_RESERVATIONS:
        raise ConflictError(f"{caller.user!r} has {MOST_RESERVATIONS} reservations", "cancel some of them first")


def _require_fit(core: Core, wanted: AdvanceReservation) -> None:
    """Refuse what does not fit as the core would, with the nearest time on the server's clock.

    Raises:
        NotFoundError, InvalidInputError, ConflictError: it cannot be agreed upon.
    """
    found = core.scheduler.misfit(wanted, core.now)
    if found is None:
        return
    remedy = found.remedy
    if found.fits_from is not None:
        remedy = f"it fits from {local_time(found.fits_from + 59.0)} on"  # a full minute, and not before it
    raise ConflictError(f"reservation {wanted.name!r} does not fit: {found.why}", remedy)


def _info(view: ReservationView, now: float) -> ReservationInfo:
    wanted = view.reservation
    state = "agreed" if not view.cards_on else "active" if wanted.begin <= now else "placed"
    return ReservationInfo(
        name=wanted.name,
        queue=wanted.queue,
        pool=wanted.pool,
        cards=wanted.cards,
        begin=wanted.begin,
        until=wanted.until,
        state=state,
        models=list(wanted.models),
        whole_nodes=wanted.whole_nodes,
        beyond_guarantee=wanted.beyond_guarantee,
        nodes=view.cards_on,
        unused_gpu_milli=view.unused_milli if wanted.begin <= now else 0,
        jobs=list(view.users),
        by=wanted.by,
    )
