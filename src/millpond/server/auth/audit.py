"""The audit log: every request that changes something, or was refused to, noted in one place in front of all routes.

Entries are written by a thread of their own, many at once. Requests about accounts wait until theirs is on disk, and
fail where the log is damaged; those about jobs do not, because the scheduler's log, which is on disk before they are
answered, names their user as well.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, OperationalError

from millpond.model.errors import UnavailableError
from millpond.node.host.periodic_worker import PassTrouble
from millpond.server.auth.roles import AccessTarget, Caller, Verb
from millpond.server.store.audit import AuditQuery, AuditStore
from millpond.server.store.tables import RESTORE
from millpond.specs.api.accounts.accounts import AuditInfo

log = logging.getLogger(__name__)

GATHER_S: Final = 0.2
"""Entries that no request waits for are gathered for so long before they are written."""
RETRY_S: Final = 1.0
_LONGEST_OBJECT = 200
_LONGEST_GROUP = 64
"""A request may name any: what is longer, or cannot be printed, is none."""
_LONGEST_ACCOUNT = 2_000


@dataclass(slots=True)
class Act:
    """One request.

    Attributes:
        caller: None for a client that has not shown who it is.
        verb: empty until a route has taken the request on.
        claimed: the name given at a login.
        before, after: in short, what was and what is now.
        changes: it is written down although it only fetches something: so does a browser that comes back from a login.
        continues: it goes on with what was written down when it began, or only fetches something.
        lasts: the answer begins before it is known how it comes out; who does it writes it down when it is.
    """

    at: float
    address: str
    caller: Caller | None
    verb: str = ""
    target: AccessTarget = AccessTarget("", "")
    claimed: str = ""
    before: str = ""
    after: str = ""
    changes: bool = False
    lasts: bool = False
    continues: bool = False

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the scheduler's log names its user too."""
        return self.verb in (Verb.SUBMIT_JOBS, Verb.CHANGE_JOBS)

    def entry(self, status: int) -> AuditInfo | None:
        """The entry for the audit log, once the answer is known; None when there is nothing to log."""
        if self.verb in ("", Verb.SEND_FILES):
            return None
        # A user in several groups is no single group's matter: only admins read of them and of what they do.
        groups = self.target.groups or (self.caller.groups if self.caller and not self.target.kind else frozenset())
        return AuditInfo(
            at=self.at,
            user=_plain(self.caller.user if self.caller else self.claimed, 64),
            address=_plain(self.address, 64),
            how=self.caller.how if self.caller else "",
            verb=self.verb,
            kind=self.target.kind,
            object=_plain(self.target.name, _LONGEST_OBJECT),
            group=_plain(next(iter(groups)), _LONGEST_GROUP) if len(groups) == 1 else "",
            before=_plain(self.before, _LONGEST_ACCOUNT),
            after=_plain(self.after, _LONGEST_ACCOUNT),
            status=status,
        )


class AuditLog:
    """Takes entries from any thread and writes them in order.

    Attributes:
        trouble: why entries cannot be written, where that is more than a full disk or a database that does not answer;
            empty when all is well.

    Raises:
        DBAPIError: the newest entry cannot be read.
    """

    def __init__(self, store: AuditStore) -> None:
        self._store = store
        self.trouble = ""
        self._failures = PassTrouble("entries of the audit log cannot be written yet", (DBAPIError,))
        store.find(AuditQuery(limit=1))  # where that fails, changes of accounts would wait for ever
        self._queue: queue.SimpleQueue[tuple[AuditInfo | None, Future[None] | None]] = queue.SimpleQueue()
        self._urgent = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def add(self, entry: AuditInfo) -> None:
        """Keep an entry; it is on disk a moment later."""
        self._queue.put((entry, None))

    def add_now(self, entry: AuditInfo) -> Future[None]:
        """Keep an entry; the future is done when it is on disk, and fails (UnavailableError) if the log is damaged."""
        done: Future[None] = Future()
        self._queue.put((entry, done))
        self._urgent.set()
        return done

    def find(self, question: AuditQuery) -> list[AuditInfo]:
        """Matching entries, the newest first."""
        return self._store.find(question)

    def close(self) -> None:
        """Write what is left, and end."""
        self._closing = True
        self._urgent.set()
        self._queue.put((None, None))
        self._thread.join()

    def _run(self) -> None:
        pending: list[tuple[AuditInfo | None, Future[None] | None]] = []
        while not (self._closing and self._queue.empty() and not pending):
            if not pending:
                pending.append(self._queue.get())
                self._urgent.wait(GATHER_S)
            self._urgent.clear()
            while not self._queue.empty():
                pending.append(self._queue.get())
            if not self._write([entry for entry, _ in pending if entry is not None]):
                if self._closing:
                    return
                if self.trouble:  # nobody knows how long a request would wait
                    for _, done in pending:
                        if done is not None:
                            done.set_exception(UnavailableError(self.trouble, RESTORE))
                    pending = [(entry, None) for entry, _ in pending]
                self._urgent.wait(RETRY_S)
                continue
            for _, done in pending:
                if done is not None:
                    done.set_result(None)
            pending.clear()

    def _write(self, entries: list[AuditInfo]) -> bool:
        if not entries:
            return True
        try:
            self._store.add(entries)
        except Exception as error:  # requests wait for this thread
            if isinstance(error, DBAPIError) and not isinstance(error, DataError):
                self._failures.note(error)
                if not isinstance(error, OperationalError):
                    self.trouble = (
                        f"the audit log cannot be written ({error.orig}): logins and changes of accounts fail"
                    )
                return False
            if len(entries) > 1:
                return all(self._write([entry]) for entry in entries)
            why = getattr(error, "orig", error)
            log.error("the database refuses an entry of the audit log for good (%s): %s", why, entries[0])
        self.trouble = ""
        self._failures.over()
        return True


def _plain(text: str, longest: int) -> str:
    """Text that stays on its line, whatever was sent."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
