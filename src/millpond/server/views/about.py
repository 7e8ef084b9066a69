"""What the server says about itself: version, address, limits and what it offers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from millpond.scheduling.settings import Settings
from millpond.server.auth.isolation import Isolation
from millpond.server.runtime.clock import SLOWER_BY
from millpond.server.runtime.loop import Loop
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.store.jobs import JobStore
from millpond.server.store.store import Store
from millpond.server.store.tables import RESTORE
from millpond.server.version import VERSION
from millpond.server.views.hardware.machines import Machines
from millpond.server.views.visibility import EVERYBODY
from millpond.server.wording import rounded_span
from millpond.specs.api.accounts.ssh import SshInfo
from millpond.specs.api.server import AdaptationInfo, ServerInfo, SettingsInfo
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins
from millpond.specs.config.webhooks import as_far_as_host


def shown_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as an admin sees it: with each address as far as its host.

    Secrets are in files of their own, which it only names. What is left are addresses: those of chat services let
    anybody write to a room who knows all of them.
    """
    return {name: _shown(value) for name, value in document.items()}


def _shown(value: Any) -> Any:
    match value:
        case Mapping():
            return shown_settings(value)
        case list():
            return [_shown(each) for each in value]
        case str() if "://" in value:
            return as_far_as_host(value)
        case _:
            return value


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says about itself that does not change while it runs.

    Attributes:
        engine: what carries decisions out: ``local`` or ``kubernetes``.
        certificate_ends: until when the certificate is valid, in seconds since 1970; None: there is none.
        unlimited: why all processes of a task together are not kept to its amounts; empty when they are.
        cards_not_closed: why single cards cannot be closed; empty where they can.
        longest_dev_s: how far the time limit of a dev job can be extended; None: without bound.
        ssh: where people come into jobs with SSH.
        notes: what was printed at its start.
        settings: gives the document of the configuration that was read last.
        at_start: the settings that count from the next start on.
        pending: gives those of them that have changed since the start.
        unshared: says why slices and swapping of real cards are refused; nothing where they are not.
    """

    url: str
    state_dir: Path
    started_at: float
    engine: str = "local"
    certificate_ends: Callable[[], float | None] = lambda: None
    unlimited: str = ""
    cards_not_closed: str = ""
    longest_dev_s: float | None = None
    ssh: SshInfo = SshInfo()
    origins: JobOrigins = PATHS_ONLY
    unshared: Callable[[str], str] = lambda _pool: ""
    notes: tuple[str, ...] = ()
    settings: Callable[[], Mapping[str, Any]] = dict
    at_start: tuple[str, ...] = ()
    pending: Callable[[], list[str]] = list


class About:
    """Reports what the server is and how many jobs it has.

    Attributes:
        policies_by: gives how policies are chosen, of the settings that hold; None where nothing chooses.
    """

    def __init__(
        self, facts: ServerFacts, loop: Loop, job_store: JobStore, isolation: Isolation, machines: Machines
    ) -> None:
        self.policies_by: Callable[[Settings], AdaptationInfo] | None = None
        self._facts = facts
        self._loop = loop
        self._job_store = job_store
        self._isolation = isolation
        self._machines = machines

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of its start."""
        return self._facts.notes

    def settings(self) -> SettingsInfo:
        """The configuration that was read last, and what of it does not count yet."""
        facts = self._facts
        return SettingsInfo(
            settings=shown_settings(facts.settings()), at_start=list(facts.at_start), pending=facts.pending()
        )

    async def adaptation(self) -> AdaptationInfo:
        """Which policies hold, and how they are chosen."""
        settings = await self._loop.ask(lambda core: core.scheduler.settings)
        if self.policies_by is not None:
            return self.policies_by(settings)
        return AdaptationInfo(chooses=False, policies=str(settings.policies))

    async def info(self, admin: bool) -> ServerInfo:
        """The server itself; where it lies on its machine is for admins."""
        ended, nodes = (
            await asyncio.to_thread(self._job_store.ended_counts),
            await self._machines.all(EVERYBODY),
        )
        facts, settings = self._facts, await self._loop.ask(lambda core: core.scheduler.settings)
        return ServerInfo(
            version=VERSION,
            url=facts.url,
            engine=facts.engine,
            fake=any(node.fake for node in nodes),
            pid=os.getpid() if admin else 0,
            state_dir=str(facts.state_dir) if admin else "",
            started_at=facts.started_at,
            ordering=settings.ordering,
            placement=settings.placement,
            unsandboxed=self._isolation.apart.trouble,
            unlimited=facts.unlimited,
            unshared=facts.unshared("") if admin else "",
            notes=list(facts.notes) if admin else [],
            apart="" if self._loop.read_only is None else str(self._loop.read_only),
            jobs=dict(sorted((self._loop.job_cache.counts() | ended).items())),
        )


STORE_ANSWERS_WITHIN_S: Final = 5.0
WRONG_TIME_S: Final = 60.0
"""The scheduler's time is as much ahead of the clock, or more: it does things too early."""


class ServerHealth:
    """Looks how the server is.

    Args:
        closing: set when the server is about to stop.

    Attributes:
        audit_trouble: says why entries of the audit log cannot be written; nothing, until there is one.
    """

    def __init__(self, loop: Loop, store: Store, disk: DiskBooks, closing: Event) -> None:
        self._loop = loop
        self._store = store
        self._disk = disk
        self._closing = closing
        self.audit_trouble: Callable[[], str] = str
        self._reader = ThreadPoolExecutor(1, "store-health")
        self._reading: Future[int | None] | None = None

    def dead(self) -> str:
        """Why this process will never take work on again; empty while it may."""
        return self._loop.dead()

    async def unready(self) -> str:
        """Why requests should not come here; empty when they should."""
        known = self._loop.dead() or ("the server is stopping" if self._closing.is_set() else self._loop.trouble)
        if known:
            return known
        reading = self._reading
        if reading is None or reading.done():  # a store that hangs takes one thread, however often it is asked for
            reading = self._reading = self._reader.submit(self._store.latest_snapshot_seq)
        try:
            await asyncio.wait_for(asyncio.wrap_future(reading), STORE_ANSWERS_WITHIN_S)
        except DBAPIError as error:
            return f"the store cannot be read ({error.orig})"
        except TimeoutError:
            return f"the store does not answer within {STORE_ANSWERS_WITHIN_S:g} s"
        damaged = self.audit_trouble()
        return f"{damaged}; {RESTORE}" if damaged else ""

    async def troubled(self) -> str:
        """Why it is unready, or degraded; empty when all is well."""
        return await self.unready() or self.degraded()

    def degraded(self) -> str:
        """Why no new work is taken on, or none started, or not by the time of day; empty when all is well."""
        if self._loop.read_only is not None:
            return self._loop.read_only.cause
        full = self._disk.full()
        if full:
            return f"nothing is taken on: {full}"
        held = next(iter(self._loop.paused.values()), "")
        if held:
            return f"nothing new starts: {held}"
        ahead_s = self._loop.now - time.time()
        if ahead_s < WRONG_TIME_S:
            return ""
        return (
            "the machine's clock was set back, and the scheduler's time runs on slowly until it has caught up: "
            f"windows, deadlines and reservations are {rounded_span(ahead_s)} early, and right in "
            f"{rounded_span(ahead_s / SLOWER_BY)}"
        )
