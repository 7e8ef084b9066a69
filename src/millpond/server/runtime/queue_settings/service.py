"""Defines queues at run time: by requests, and by the configuration file as it is read.

What queues say is stored first and reported to the scheduler then, and what that does not know yet is reported again
when the server starts. So a change that was acknowledged is there after any crash, and one that was not is there as a
whole or not at all. Changes are made one after another.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from millpond.model.errors import (
    ConflictError,
    InconsistentStateError,
    InvalidInputError,
    MillpondError,
    NotFoundError,
    UnavailableError,
)
from millpond.model.events import Event, QueueChanged, QueueRemoved
from millpond.model.hardware.nodes import Node
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, ROOT_QUEUE, Queue
from millpond.node.host.clocks import WallClock
from millpond.scheduling.tenancy.queue_views import QueueStatus
from millpond.server.auth.accounts import Accounts
from millpond.server.runtime.core import Core
from millpond.server.runtime.loop import Loop
from millpond.server.runtime.queue_settings.book import QueueBook, QueueFacts
from millpond.server.runtime.queue_settings.effects import changed_rooms, effects_of
from millpond.server.runtime.queue_settings.hardware_checks import beyond_cells, beyond_machines
from millpond.server.store.settings import QueueRow, QueueSettingsStore
from millpond.specs.api.pool.queues import QueueRoomChange
from millpond.specs.config.queue_documents import (
    QueueDocument,
    at_its_line,
    read_queue_rules,
    read_queues,
    with_field,
)
from millpond.specs.config.queues import QueueRules, parents_first
from millpond.specs.errors import Problem, SpecError, suggest
from millpond.specs.source_positions import Located

log = logging.getLogger(__name__)

NEVER_CHANGED: Final = 0
"""The version of a queue that came with its group and was never changed since."""


@dataclass(frozen=True, slots=True)
class QueueEdit:
    """What is asked of one queue.

    Attributes:
        by: who asks.
        version: the version that they have seen; None: whatever it is.
        dry_run: it is only said what would come of it.
    """

    by: str
    version: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class QueueEdited:
    """What an edit came to, or would come to.

    Attributes:
        before, after: what the queue said and says; None where there was or is none.
        version: of the queue, from now on; in a dry run, as it is.
        effects: what it means for what runs, a sentence each.
        rooms: the queues that have other room with it.
    """

    name: str
    before: QueueDocument | None
    after: QueueDocument | None
    version: int
    effects: tuple[str, ...] = ()
    rooms: tuple[QueueRoomChange, ...] = ()


class QueueSettings:
    """All queues of a server, as they are defined.

    Attributes:
        trouble: why the queues are not those of the configuration since the start; empty where they are.
    """

    def __init__(self, store: QueueSettingsStore, loop: Loop, accounts: Accounts, clock: WallClock) -> None:
        self._store = store
        self._loop = loop
        self._accounts = accounts
        self._clock = clock
        self._lock = threading.Lock()
        self._book = QueueBook(store.all())
        self._rules = self._rules_of(self._book)
        self.trouble = ""

    @property
    def rules(self) -> Mapping[str, QueueRules]:
        """What holds for the jobs of queues beside their quotas, by queue; replaced as a whole."""
        return self._rules

    def row(self, name: str) -> QueueRow | None:
        """What a queue says, and who changed it; None of one that came with its group and was never changed."""
        row = self._book.rows.get(name)
        return None if row is None or row.document is None else row

    def changed_since(self, at: float) -> list[QueueRow]:
        """The queues that were changed since an instant, and are still there."""
        return [row for row in self._book.rows.values() if row.document is not None and row.at >= at]

    # ---- the configuration file -------------------------------------------------------------------------------------

    def begin(
        self,
        core: Core,
        texts: Mapping[str, QueueDocument] | None,
        located: Located | None = None,
        machines: Amount | None = None,
        joining: Sequence[Node] = (),
    ) -> list[Event]:
        """For the start of a server, before its scheduler's thread: what the scheduler does not know yet.

        Where what the file says does not go together with what runs, or with what was changed since, all queues stay as
        they were.

        Args:
            texts: what the configuration file says of its queues; None without a file.
            located: the file, so that a fault has its line.
            machines: what those have that are there while the scheduler knows of none yet.
            joining: these machines.
        """
        facts = self._facts(core)
        try:
            book = self._book if texts is None else self._book.with_file(texts, facts, self._clock())
            with _at_lines_of(located):
                _require_places(book, facts)
                known = core.scheduler.all_machines()
                self._require_hardware(core, book, facts, known if known != Amount() else machines, joining)
                changes = self._changes_of_file(core, book, facts)
        except MillpondError as error:
            self.trouble = f"warning: the queues stay as they were: {error}"
            log.warning("the queues stay as they were: %s", error)
            return []
        self._keep(book, texts)
        return changes

    def apply_file(self, texts: Mapping[str, QueueDocument], located: Located | None = None) -> None:
        """The configuration file was read again; arguments as for ``begin``. Not for the scheduler's thread.

        Raises:
            MillpondError: its queues do not go together with what runs, or with what was changed since; nothing has
                changed.
        """
        with self._lock:
            facts, now = self._loop.look_up(self._facts), self._clock()
            book = self._book.with_file(texts, facts, now)
            self._require_known_models(self._changed_rows(book))
            with _at_lines_of(located):
                _require_places(book, facts)
                self._loop.look_up(lambda core: self._require_hardware(core, book, facts))
                changes = self._loop.look_up(lambda core: self._changes_of_file(core, book, facts))
            compared = self._loop.look_up(lambda core: self._compared(core, book, facts))
            self._keep(book, texts)
            self._loop.notify(changes)
            for effect in effects_of(*compared):
                log.info("by the queues of the configuration: %s", effect)
            self._loop.look_up(lambda core: None)

    def _keep(self, book: QueueBook, texts: Mapping[str, QueueDocument] | None) -> None:
        with _storing():
            self._store.save(self._changed_rows(book))
        self._hold(book)
        for name in book.left_over(texts) if texts is not None else ():
            log.warning("queue %s is not in the configuration any more, and stays while something uses it", name)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def add(self, name: str, fields: Mapping[str, Any], edit: QueueEdit) -> QueueEdited:
        """Define a queue. As ``change`` and ``delete`` not for the scheduler's thread, nor for that of requests.

        Raises:
            ConflictError: there is one of this name; its parent is used and takes jobs.
            InvalidInputError: a field is wrong, or does not go together with the other queues.
        """
        with self._editing() as facts:
            if name in facts.known or self._book.row(name, facts) is not None:
                hint = f"change it with `pond queue set {name}`"
                raise ConflictError(f"there is a queue {name!r} already", hint)
            return self._change(name, _without_null(fields), edit, facts)

    def change(self, name: str, fields: Mapping[str, Any], edit: QueueEdit) -> QueueEdited:
        """Change fields of a queue; those that are None are left out from now on. Running work goes on.

        Raises:
            NotFoundError: there is no such queue.
            ConflictError: its version is another one.
            InvalidInputError: a field is wrong, or does not go together with the other queues.
        """
        with self._editing() as facts:
            row = self._seen(name, edit, facts)
            assert row.document is not None
            return self._change(name, _without_null({**row.document, **fields}), edit, facts)

    def delete(self, name: str, edit: QueueEdit) -> QueueEdited:
        """Delete a queue that nothing uses.

        Raises:
            NotFoundError: there is no such queue.
            ConflictError: its version is another one, or something uses it.
        """
        with self._editing() as facts:
            row = self._seen(name, edit, facts)
            if use := self._book.use_of(name, facts):
                raise ConflictError(f"queue {name!r} cannot be deleted: {use.how}", use.remedy)
            edited = QueueEdited(name, row.document, None, row.version)
            if edit.dry_run:
                return edited
            self._commit(QueueRow(name, None, row.applied, row.version + 1, edit.by, self._clock()), facts)
            return replace(edited, version=row.version + 1)

    def tried(self, edits: Sequence[tuple[str, str, Any]], joining: Amount | None = None) -> list[Event]:
        """What leads to queues with other values of fields, all together; nothing is changed.

        Args:
            edits: queue, field or part of one (``limit.gpus``), and value; None leaves it out.
            joining: what machines have that would be there beside the known ones.

        Raises:
            NotFoundError: there is no such queue.
            InvalidInputError: a field is wrong, does not go together with the other queues, or changes nothing.
        """
        facts, book = self._loop.look_up(self._facts), self._book
        for name, field, value in edits:
            row = book.row(name, facts) or self._seen(name, QueueEdit(""), facts)
            document = _without_null(with_field(row.document or {}, field, value))
            book = book.with_row(replace(row, document=document))
            self._require_known_models([book.rows[name]])
        more = joining or Amount()
        self._loop.look_up(lambda core: self._require_hardware(core, book, facts, core.scheduler.all_machines() + more))
        changes: list[Event] = self._loop.look_up(lambda core: self._changes(core, book, facts))
        changed = {queue.name for queue in _queues_of(changes)}
        for name, field, value in edits:
            before = self._book.row(name, facts)
            if name not in changed and before is not None and book.rows[name].document != before.document:
                raise InvalidInputError(f"{name}.{field} is not about when and where jobs run", "leave it out")
            if name not in changed:
                written = "left out" if value is None else value
                raise InvalidInputError(f"{name}.{field} is {written} already", "leave it out, or give another value")
        return changes

    def _change(self, name: str, document: QueueDocument, edit: QueueEdit, facts: QueueFacts) -> QueueEdited:
        if "name" in document:
            raise InvalidInputError("the name of a queue cannot be changed", "add a queue of the other name")
        before = self._book.row(name, facts)
        if before is not None and before.document == document:
            return QueueEdited(name, document, document, before.version)
        known = self._book.rows.get(name)
        row = QueueRow(
            name,
            dict(document),
            None if known is None else known.applied,
            (NEVER_CHANGED if known is None else known.version) + 1,
            edit.by,
            self._clock(),
        )
        book = self._book.with_row(row)
        self._require_known_models([row])
        self._loop.look_up(lambda core: self._require_hardware(core, book, facts))
        compared = self._loop.look_up(lambda core: self._compared(core, book, facts))
        edited = QueueEdited(
            name,
            None if before is None else before.document,
            document,
            NEVER_CHANGED if before is None else before.version,
            tuple(effects_of(*compared)),
            tuple(changed_rooms(*compared)),
        )
        if edit.dry_run:
            return edited
        self._commit(row, facts)
        return replace(edited, version=row.version)

    def _seen(self, name: str, edit: QueueEdit, facts: QueueFacts) -> QueueRow:
        """The queue that an edit is about, as the user has seen it."""
        row = self._book.row(name, facts)
        if name == ROOT_QUEUE:
            raise InvalidInputError("the root of the queues has no fields", "change the queues below it")
        if row is None:
            raise NotFoundError(
                f"no queue {name!r}", suggest(name, [each for each in facts.known if each != ROOT_QUEUE])
            )
        if edit.version not in (None, row.version):
            by = f" by {row.by}" if row.by else ""
            raise ConflictError(
                f"queue {name!r} was changed{by} meanwhile: it has version {row.version}, not {edit.version}",
                f"look at `pond queue show {name}`, then ask with --version {row.version}",
            )
        return row

    def _commit(self, row: QueueRow, facts: QueueFacts) -> None:
        """Store a change of one queue and have the scheduler take it; where that refuses, all is as before.

        What the scheduler has taken up and not answered in time stays: it is made then, or by the next start.
        """
        before, book = self._book, self._book.with_row(row)
        changes = self._loop.look_up(lambda core: self._changes(core, book, facts))
        with _storing():
            self._store.save([row])
        self._hold(book)
        own = [change for change in changes if _queue_in(change) == row.name]
        answer: Future[None] = Future()
        try:
            for change in own:
                answer = self._loop.change_setting(partial(_at, change))
                self._loop.wait_for(answer)
        except MillpondError as refusal:
            if not answer.cancel() and not (answer.done() and answer.exception()):
                raise
            self._hold(before)
            try:
                self._store.save([before.rows.get(row.name) or replace(row, document=None, applied=None)])
            except DBAPIError as error:
                raise UnavailableError(
                    f"{refusal.cause}; the store cannot take the change back ({error.orig}): the next start makes it",
                    "change the queue again once the store can be written",
                ) from refusal
            raise

    # ---- inside -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _editing(self) -> Iterator[QueueFacts]:
        """One edit at a time, on what is known now."""
        if self._loop.read_only is not None:
            raise self._loop.read_only
        with self._lock:
            yield self._loop.look_up(self._facts)

    def _facts(self, core: Core) -> QueueFacts:
        known = {queue.name: queue for queue in core.scheduler.queues() if queue.name != BACKGROUND_QUEUE}
        owners = {group.queue: group.name for group in self._accounts.groups()}
        jobs = Counter(info.queue for info in self._loop.job_cache.newest_first() if info.parent == "")
        agreed = [view.reservation for view in core.scheduler.reservations()]
        return QueueFacts(known, jobs, owners, {each.queue: each.name for each in agreed})

    def _require_known_models(self, rows: Sequence[QueueRow]) -> None:
        """Refuse guarantees and limits of models of which no machine has a card, once any has one.

        Those that stay as they are, as a file that was read without machines has them, bar no change of other fields.
        """
        known = self._loop.look_up(lambda core: core.scheduler.card_models())
        fields = product(rows if known else (), ("guarantee", "limit"))
        for row, field in fields:
            amount, before = (row.document or {}).get(field), self._book.rows.get(row.name)
            if before is not None and (before.document or {}).get(field) == amount:
                continue
            models = amount.get("models") if isinstance(amount, Mapping) else None
            for model in models if isinstance(models, Mapping) else ():
                if model not in known:
                    hint = suggest(str(model), sorted(known)) or f"there are {', '.join(sorted(known))}"
                    raise InvalidInputError(f"{row.name}.{field}.models: no machine has cards of model {model!r}", hint)

    def _require_hardware(
        self,
        core: Core,
        book: QueueBook,
        facts: QueueFacts,
        machines: Amount | None = None,
        joining: Sequence[Node] = (),
    ) -> None:
        """Refuse cells that known machines do not have, more cards as cells than are guaranteed, and guarantees that
        are raised beyond what all machines have, once there are any.

        What machines lack already, as some are gone, bars no other change of guarantees.

        Args:
            machines: what others than the known ones have.
            joining: the machines whose cards count while none is known.

        Raises:
            SpecError: as that, with the queue.
        """
        before, after = core.scheduler.queues(), read_queues(book.documents(facts))
        if problems := list(beyond_cells(before, after, core.scheduler.machines() or joining)):
            raise SpecError(problems, "the queues would not be valid")
        bound = [row.name for row in self._changed_rows(book) if not (row.document or {}).get("may_exceed_cluster")]
        there = machines or core.scheduler.all_machines()
        if problems := beyond_machines(parents_first(list(facts.known.values())), after, bound, there):
            raise SpecError(problems, "more would be guaranteed than there is")

    def _changed_rows(self, book: QueueBook) -> list[QueueRow]:
        return [row for name, row in book.rows.items() if self._book.rows.get(name) != row]

    def _changes(self, core: Core, book: QueueBook, facts: QueueFacts) -> list[Event]:
        """What leads from the queues of the scheduler to those of a book, tried on a copy of its tree."""
        changes = book.events(read_queues(book.documents(facts)), facts, self._clock())
        core.scheduler.queue_statuses(_queues_of(changes))
        return changes

    def _changes_of_file(self, core: Core, book: QueueBook, facts: QueueFacts) -> list[Event]:
        """The same for a file, whose faults name a queue.

        Raises:
            SpecError: a reservation would no longer fit, with the first queue by which it would not.
        """
        try:
            return self._changes(core, book, facts)
        except ConflictError as refusal:
            queues = _queues_of(book.events(read_queues(book.documents(facts)), facts, self._clock()))
            name = next(
                queue.name for number, queue in enumerate(queues) if _breaks_reservation(core, queues[: number + 1])
            )
            problem = Problem(refusal.cause, refusal.remedy, name)
            raise SpecError([problem], "the queues do not go together with what is reserved") from refusal

    def _compared(
        self, core: Core, book: QueueBook, facts: QueueFacts
    ) -> tuple[Sequence[QueueStatus], Sequence[QueueStatus]]:
        """All queues as they are, and as they would be by a book."""
        changes = book.events(read_queues(book.documents(facts)), facts, self._clock())
        return core.scheduler.queue_statuses(), core.scheduler.queue_statuses(_queues_of(changes))

    def _hold(self, book: QueueBook) -> None:
        self._book, self._rules = book, self._rules_of(book)

    def _rules_of(self, book: QueueBook) -> Mapping[str, QueueRules]:
        return read_queue_rules({name: row.document for name, row in book.rows.items() if row.document is not None})


def _breaks_reservation(core: Core, queues: Sequence[Queue]) -> bool:
    """Whether a reservation that fits now would not with these queues defined so."""
    try:
        core.scheduler.queue_statuses(queues)
    except ConflictError:
        return True
    except InvalidInputError:
        pass  # what follows belongs to it
    return False


def _queues_of(changes: Sequence[Event]) -> list[Any]:
    return [change.queue for change in changes if isinstance(change, QueueChanged)]


def _queue_in(change: Event) -> str:
    """The queue that a change is about."""
    match change:
        case QueueChanged(queue=queue):
            return queue.name
        case QueueRemoved(queue=name):
            return name
        case _:
            raise InconsistentStateError(f"no change of a queue: {type(change).__name__}")


def _at(change: Event, now: float) -> Event:
    return replace(change, at=now)


def _require_places(book: QueueBook, facts: QueueFacts) -> None:
    """Refuse queues of a file that would move, or be below one that is used and takes jobs.

    Raises:
        SpecError: as that, with each queue.
    """
    if problems := list(book.misplaced(read_queues(book.documents(facts)), facts)):
        raise SpecError(problems, "the queues would not be valid")


def _without_null(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@contextmanager
def _at_lines_of(located: Located | None) -> Iterator[None]:
    """Give faults of queues that a file names the lines of the file."""
    try:
        yield
    except SpecError as error:
        if located is None:
            raise
        raise SpecError([at_its_line(each, located) for each in error.problems], error.summary) from error


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise UnavailableError(f"queues cannot be stored ({error.orig})", "see the server's log") from error
