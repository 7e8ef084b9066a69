"""Stage images and data of jobs onto this machine before they queue, so that no cards are held meanwhile.

What several jobs need is fetched once. Threads of this file's own fetch; a look at how far a job is never waits. A
registry or a disk that never answers takes the threads of those alone who name it: a user has a few at once, and there
are more. All of it can be begun anew after a restart: what is here already is found here.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.host.clocks import MonotonicClock
from millpond.server.storage.provisioning.cache import CopyProgress

log = logging.getLogger(__name__)

AT_ONCE: Final = 32
OF_ONE_USER: Final = 4
"""So much of one user is fetched at once."""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0
ENDS_WITHIN_S: Final = 5.0
"""A registry that says nothing for long does not keep the server from ending."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something to be fetched.

    Attributes:
        kind: ``image``, ``data`` or ``dataset``.
        name: reference, path, or digest of a snapshot.
        digest: of an image, when that is settled.
        within: the registry of an image may be on the server's own machine, or on its link.
    """

    kind: str
    name: str
    digest: str = ""
    within: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class StageProvider(Protocol):
    """Who fetches."""

    def items(self, document: Mapping[str, Any]) -> dict[str, Item]:
        """What a job needs, by the field that names it (``image``, ``data.NAME``); quick."""

    def fetch(self, item: Item, progress: CopyProgress, stop: Callable[[], None]) -> str:
        """Have an item here; returns what it is pinned to. Blocks.

        Raises:
            InvalidInputError, NotFoundError: it can never be had.
            UnavailableError: not now.
        """

    def pin(self, job: str, found: Mapping[str, str]) -> None:
        """Write down what was found for a job."""


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a job is.

    Attributes:
        ready: everything is here.
        unsatisfiable: why it can never start; empty when it can.
        summary: what it waits for, for a person.
        is_image: that is an image, not data.
    """

    ready: bool = False
    unsatisfiable: str = ""
    summary: str = ""
    is_image: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Work:
    """One item on its way.

    Attributes:
        jobs: who wants it, with the user of each.
        counts_for: of the users, the one of whom it is fetched.
    """

    item: Item
    progress: CopyProgress
    jobs: dict[str, str]
    counts_for: str = ""
    running: bool = False
    tried: int = 0
    trouble: str = ""


@dataclass(slots=True)
class _Wanting:
    """One job that waits."""

    items: dict[str, Item]
    found: dict[str, str]
    unsatisfiable: str = ""
    ready: bool = False


class _StoppedError(Exception):
    """No job wants it any more."""


class Staging:
    """All that is being fetched.

    Args:
        wake: called when a job is ready or given up; must return at once.
    """

    def __init__(
        self, provider: StageProvider, wake: Callable[[], None], clock: MonotonicClock = time.monotonic
    ) -> None:
        self._provider = provider
        self._wake = wake
        self._clock = clock
        self._condition = threading.Condition()
        self._wanting: dict[str, _Wanting] = {}
        self._works: dict[Item, _Work] = {}
        self._due: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self._fetched = Counter[str]()
        self._held: dict[Item, None] = {}  # due, but of users of whom as much is fetched as may be at once
        self._settled: deque[str] = deque()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"staging-{number}", daemon=True) for number in range(AT_ONCE)
        ]

    def start(self) -> None:
        """Begin to fetch."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; what is half done is gone on with by the next server."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        ends_at = self._clock() + ENDS_WITHIN_S
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, ends_at - self._clock()))

    def begin(self, job: str, document: Mapping[str, Any], user: str) -> None:
        """Fetch what a job of a user needs. Returns at once."""
        items = self._provider.items(document)
        if not items:
            return
        with self._condition:
            self._wanting[job] = _Wanting(items, {})
            for item in dict.fromkeys(items.values()):
                if item in self._works:
                    self._works[item].jobs[job] = user
                else:
                    self._add(item, {job: user})
            self._plan_held()
            self._condition.notify_all()

    def forget(self, job: str) -> None:
        """A job needs nothing any more."""
        with self._condition:
            wanting = self._wanting.pop(job, None)
            for item in set(wanting.items.values()) if wanting is not None else ():
                work = self._works.get(item)
                if work is not None:
                    work.jobs.pop(job, None)

    def look(self, job: str) -> Stage:
        """How far a job is; one that was not begun is ready."""
        with self._condition:
            wanting = self._wanting.get(job)
            if wanting is None:
                return Stage(ready=True)
            if wanting.unsatisfiable:
                return Stage(unsatisfiable=wanting.unsatisfiable)
            if wanting.ready:
                return Stage(ready=True)
            works = [self._works[item] for item in dict.fromkeys(wanting.items.values()) if item in self._works]
            return _stage(works) if works else Stage(summary="it is about to queue")

    def settled(self) -> list[str]:
        """Jobs that became ready, or were given up, since the last call."""
        with self._condition:
            jobs = list(self._settled)
            self._settled.clear()
        return jobs

    def found(self) -> frozenset[str]:
        """What was found for jobs that are not ready yet, and what is on its way to them."""
        with self._condition:
            found = {key for wanting in self._wanting.values() for key in wanting.found.values()}
            return frozenset(found | {work.progress.key for work in self._works.values() if work.progress.key})

    # ---- the threads --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                found = self._provider.fetch(work.item, work.progress, partial(self._check_wanted, work))
                self._have(work, found)
            except _StoppedError:
                self._drop(work)
            except (InvalidInputError, NotFoundError) as error:
                self._give_up(work, error)
            except (UnavailableError, DBAPIError) as error:
                self._try_again(work, str(getattr(error, "cause", error)))
            except Exception as error:  # no item may end the thread that fetches all others
                log.exception("%s cannot be fetched by a defect", work.item)
                self._try_again(work, f"a defect ({type(error).__name__}), see the server's log")
            finally:
                self._over(work)

    def _next(self) -> _Work | None:
        """The next item that is due; None at the end."""
        with self._condition:
            while not self._closing:
                now = self._clock()
                if self._due and self._due[0][0] <= now:
                    work = self._works.get(heapq.heappop(self._due)[2])
                    if work is not None and not work.running and self._takes(work):
                        return work
                    continue
                self._condition.wait(self._due[0][0] - now if self._due else None)
        return None

    def _takes(self, work: _Work) -> bool:
        """Whether an item that is due is fetched now: it is wanted, and a user who wants it has room."""
        if not work.jobs:
            del self._works[work.item]
            return False
        user = next((each for each in work.jobs.values() if self._fetched[each] < OF_ONE_USER), None)
        if user is None:
            self._held[work.item] = None
            return False
        work.running, work.counts_for = True, user
        self._fetched[user] += 1
        return True

    def _over(self, work: _Work) -> None:
        """An item is fetched no longer: what had no room is looked at again."""
        with self._condition:
            self._fetched[work.counts_for] -= 1
            self._plan_held()
            self._condition.notify_all()

    def _plan_held(self) -> None:
        for item in self._held:
            self._plan(item, 0.0)
        self._held.clear()

    def _check_wanted(self, work: _Work) -> None:
        if self._closing or not work.jobs:
            raise _StoppedError

    def _have(self, work: _Work, found: str) -> None:
        """An item is here: jobs that lack nothing more get it written down, and are ready."""
        complete: dict[str, dict[str, str]] = {}
        with self._condition:
            self._works.pop(work.item, None)
            for job in work.jobs:
                wanting = self._wanting[job]
                wanting.found |= {name: found for name, item in wanting.items.items() if item == work.item}
                if len(wanting.found) == len(wanting.items):
                    complete[job] = dict(wanting.found)
        for job, pins in complete.items():
            self._provider.pin(job, pins)
        with self._condition:
            for job in complete.keys() & self._wanting.keys():
                self._wanting[job].ready = True
                self._settle(job)

    def _drop(self, work: _Work) -> None:
        with self._condition:
            self._works.pop(work.item, None)
            if work.jobs and not self._closing:  # another job came at the last moment
                self._add(work.item, work.jobs)

    def _give_up(self, work: _Work, error: MillpondError) -> None:
        with self._condition:
            self._works.pop(work.item, None)
            for job in work.jobs:
                self._wanting[job].unsatisfiable = error.cause
                self._settle(job)
            self._condition.notify_all()

    def _try_again(self, work: _Work, trouble: str) -> None:
        work.tried += 1
        pause = min(FIRST_PAUSE_S * 2.0 ** (work.tried - 1), LONGEST_PAUSE_S)
        log.warning("%s cannot be fetched (%s); trying again in %g s", work.item, trouble, pause)
        with self._condition:
            work.running, work.trouble = False, trouble
            waiting = self._works.setdefault(work.item, work)  # another, if it was here and could not be written down
            waiting.jobs |= work.jobs
            self._plan(work.item, pause)
            self._condition.notify_all()

    def _add(self, item: Item, jobs: Mapping[str, str]) -> None:
        self._works[item] = _Work(item, CopyProgress(), dict(jobs))
        self._plan(item, 0.0)

    def _plan(self, item: Item, pause_s: float) -> None:
        heapq.heappush(self._due, (self._clock() + pause_s, next(self._numbers), item))

    def _settle(self, job: str) -> None:
        self._settled.append(job)
        self._wake()


class NothingToStage:
    """Where no job waits for an image or for data."""

    def begin(self, job: str, document: Mapping[str, Any], user: str) -> None:
        """Does nothing."""

    def forget(self, job: str) -> None:
        """Does nothing."""

    def look(self, job: str) -> Stage:
        """Every job is ready."""
        return Stage(ready=True)

    def settled(self) -> list[str]:
        """No jobs."""
        return []


NOTHING_TO_STAGE: Final = NothingToStage()


def _stage(works: list[_Work]) -> Stage:
    """The words about what a job waits for: what is in trouble first, then what is under way."""
    work = min(works, key=lambda each: (not each.trouble, not each.running))
    done, total = sum(each.progress.done for each in works), sum(each.progress.total for each in works)
    more = f", and {len(works) - 1} more" if len(works) > 1 else ""
    numbers = {"bytes_done": done, "bytes_total": total, "things_waited_for": len(works)}
    if work.trouble:
        text = f"{work.item}{more}: {work.trouble}; it is tried again"
    elif total:
        text = f"{work.item}{more} to be copied: {_gib(done)} of {_gib(total)} GiB"
    else:
        text = f"{work.item}{more} to be fetched"
    return Stage(summary=f"it waits for {text}", is_image=work.item.kind == "image", numbers=numbers)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
