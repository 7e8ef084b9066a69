"""What all queues say, and how that changes by the configuration file and by requests; nothing here does anything.

The file is applied as a *three-way merge*, field by field: what it said last, what it says now, and what a queue says
because of requests since. A field changes where the file has changed it. So a request holds until the file says
something else about the same field, and each field says what it was told last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millpond.model import events
from millpond.model.amounts import count_text
from millpond.model.errors import ConflictError
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, ROOT_QUEUE, Queue, takes_more_cells
from millpond.server.store.settings import QueueRow
from millpond.specs.config.queue_documents import QueueDocument
from millpond.specs.errors import Problem

ALWAYS_THERE: Final = (ROOT_QUEUE, DEFAULT_QUEUE)
_NAMED: Final = 5
"""So many queues are named in a message."""


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What keeps a queue from being deleted, in words, and what to do about it."""

    how: str
    remedy: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known of queues beside what they say.

    Attributes:
        known: the queues of the scheduler, each behind its parent.
        jobs: how many jobs of each have not ended: those that wait for others or for data too, an array as one.
        owners: the group that owns each, where one does.
        reservations: a reservation that is agreed for each, where one is.
    """

    known: Mapping[str, Queue]
    jobs: Counter[str] = field(default_factory=Counter)
    owners: Mapping[str, str] = field(default_factory=dict)
    reservations: Mapping[str, str] = field(default_factory=dict)

    def use_of(self, name: str) -> QueueUse | None:
        """By what a queue is used that takes jobs; None where by nothing."""
        if jobs := self.jobs[name]:
            have = f"{count_text(jobs, 'job')} of it {'has' if jobs == 1 else 'have'} not ended"
            return QueueUse(have, f"wait, or stop them: `pond stop --queue {name}`")
        if reservation := self.reservations.get(name):
            return QueueUse(
                f"it has a reservation: {reservation}", f"cancel it: `pond reservations cancel {reservation}`"
            )
        owner = self.owners.get(name, "")
        return QueueUse(f"group {owner} owns it", "its members' jobs go there") if owner else None


@dataclass(frozen=True, slots=True)
class QueueBook:
    """All queues, by name: those that were ever defined by the file or by a request."""

    rows: Mapping[str, QueueRow] = field(default_factory=dict)

    def row(self, name: str, facts: QueueFacts) -> QueueRow | None:
        """What a queue says; None where there is none. One that came with a group says its parent alone."""
        row, known = self.rows.get(name), facts.known.get(name)
        if row is not None and row.document is not None:
            return row
        if known is None or name == ROOT_QUEUE:
            return None
        return QueueRow(name, {"parent": known.parent}, None, 0 if row is None else row.version, "", 0.0)

    def documents(self, facts: QueueFacts) -> dict[str, QueueDocument]:
        """What all queues say that there should be."""
        deleted = {name for name, row in self.rows.items() if row.document is None and not facts.use_of(name)}
        names = dict.fromkeys([*facts.known, *self.rows])
        rows = [self.row(name, facts) for name in names if name not in deleted]
        return {row.name: row.document for row in rows if row is not None and row.document is not None}

    def with_row(self, row: QueueRow) -> QueueBook:
        """The same with another row."""
        return QueueBook({**self.rows, row.name: row})

    def with_file(self, texts: Mapping[str, QueueDocument], facts: QueueFacts, now: float) -> QueueBook:
        """As the configuration file wants it.

        Args:
            texts: what the file says of its queues, by name.
        """
        rows = dict(self.rows)
        for name, text in texts.items():
            row = rows.get(name) or QueueRow(name, None, None, 0, "", now)
            if row.applied != text:
                document = dict(text) if row.document is None else merged(row.document, row.applied or {}, text)
                rows[name] = QueueRow(name, document, dict(text), row.version + 1, "", now)
        dropped = {name for name, row in rows.items() if row.applied is not None and name not in texts}
        for name in [name for name in dropped if rows[name].document is None]:
            rows[name] = replace(rows[name], applied=None)
            dropped.remove(name)
        book = QueueBook(rows)
        while deletable := [name for name in dropped if not book.use_of(name, facts)]:
            for name in deletable:
                row = book.rows[name]
                book = book.with_row(QueueRow(name, None, None, row.version + 1, "", now))
                dropped.remove(name)
        return book

    def use_of(self, name: str, facts: QueueFacts) -> QueueUse | None:
        """Why a queue cannot be deleted; None where it can."""
        if name in ALWAYS_THERE:
            return QueueUse("it is always there", "delete another one")
        below = [other for other, document in self.documents(facts).items() if parent_in(document) == name]
        if below:
            names = ", ".join(below[:_NAMED]) + (", …" if len(below) > _NAMED else "")
            return QueueUse(
                f"{names} {'is' if len(below) == 1 else 'are'} below it", "delete the queues below it first"
            )
        return facts.use_of(name)

    def left_over(self, texts: Mapping[str, QueueDocument]) -> list[str]:
        """Queues that the file no longer has, and that are still there because something uses them."""
        return [name for name, row in self.rows.items() if row.applied is not None and name not in texts]

    def events(self, queues: Sequence[Queue], facts: QueueFacts, now: float) -> list[events.Event]:
        """What leads from the queues that the scheduler knows to these.

        Raises:
            ConflictError: a queue would get others below it, and is used.
        """
        for problem in self._below_used(queues, facts):
            raise ConflictError(problem.message, problem.hint)
        changed = [queue for queue in queues if queue.name in self.rows and facts.known.get(queue.name) != queue]
        # Cells that move from one queue to another are given up first.
        changed.sort(
            key=lambda queue: queue.name not in facts.known or takes_more_cells(queue, facts.known[queue.name])
        )
        wanted = {queue.name for queue in queues}
        gone = [name for name in reversed(list(facts.known)) if name not in (*wanted, *ALWAYS_THERE)]
        return [
            *(events.QueueRemoved(now, name) for name in gone),
            *(events.QueueChanged(now, queue) for queue in changed),
        ]

    def misplaced(self, queues: Sequence[Queue], facts: QueueFacts) -> Iterator[Problem]:
        """Queues that would get another parent, or one that is used and takes jobs."""
        for queue in queues:
            known = facts.known.get(queue.name)
            if known is not None and known.parent != queue.parent:
                message = f"queue {queue.name!r} would move from {known.parent!r} to {queue.parent!r}"
                yield Problem(message, "define a new queue under the new parent", f"{queue.name}.parent")
        yield from self._below_used(queues, facts)

    def _below_used(self, queues: Sequence[Queue], facts: QueueFacts) -> Iterator[Problem]:
        parents = {queue.parent for queue in facts.known.values()}
        for queue in queues:
            if queue.name not in self.rows or queue.name in facts.known or queue.parent in parents:
                continue
            if use := facts.use_of(queue.parent):
                cause = f"queue {queue.name!r} cannot be below {queue.parent!r}: {use.how}, and it would take no jobs"
                yield Problem(cause, "choose another parent", f"{queue.name}.parent")


def merged(document: QueueDocument, applied: QueueDocument, text: QueueDocument) -> dict[str, Any]:
    """A queue's document with those fields changed that the file says otherwise than it did."""
    found = dict(document)
    for name in dict.fromkeys([*applied, *text]):
        if name not in text:
            found.pop(name, None)
        elif name not in applied or applied[name] != text[name]:
            found[name] = text[name]
    return found


def parent_in(document: QueueDocument) -> str:
    """The parent of a queue by its document."""
    parent = document.get("parent", ROOT_QUEUE)
    return parent if isinstance(parent, str) else ""


def changed_fields(before: QueueDocument, after: QueueDocument) -> Sequence[str]:
    """The names of the fields that differ, in the order in which they are written."""
    return [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
