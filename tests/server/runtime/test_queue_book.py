"""What queues say by the configuration file and by requests, merged field by field."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from millpond.model.errors import ConflictError
from millpond.model.events import QueueChanged, QueueRemoved
from millpond.model.tenancy.tenants import DEFAULT_QUEUE, ROOT_QUEUE, Queue
from millpond.server.runtime.queue_settings.book import QueueBook, QueueFacts, merged
from millpond.server.store.settings import QueueRow
from millpond.specs.config.queue_documents import read_queues

ALWAYS = {ROOT_QUEUE: Queue(ROOT_QUEUE, ""), DEFAULT_QUEUE: Queue(DEFAULT_QUEUE)}
NOTHING_KNOWN = QueueFacts(ALWAYS)


def facts(
    *queues: str,
    jobs: dict[str, int] | None = None,
    owners: dict[str, str] | None = None,
    reservations: dict[str, str] | None = None,
) -> QueueFacts:
    """The scheduler knows these; ``lab/vision`` is below ``lab``."""
    known = {}
    for path in queues:
        parent, _, name = path.rpartition("/")
        known[name] = Queue(name, parent or ROOT_QUEUE)
    return QueueFacts({**ALWAYS, **known}, Counter(jobs or {}), owners or {}, reservations or {})


def filed(**texts: dict[str, Any]) -> QueueBook:
    return QueueBook().with_file(texts, NOTHING_KNOWN, 1.0)


def said(book: QueueBook, name: str) -> dict[str, Any] | None:
    return book.rows[name].document


def edited(book: QueueBook, name: str, document: dict[str, Any] | None) -> QueueBook:
    row = book.rows[name]
    return book.with_row(QueueRow(name, document, row.applied, row.version + 1, "ada", 2.0))


@pytest.mark.parametrize(
    ("document", "applied", "text", "expected"),
    [
        ({"weight": 2, "limit": 8}, {"weight": 2}, {"weight": 2}, {"weight": 2, "limit": 8}),
        ({"weight": 2, "limit": 8}, {"weight": 1}, {"weight": 1}, {"weight": 2, "limit": 8}),
        ({"weight": 2, "limit": 8}, {"weight": 1}, {"weight": 3}, {"weight": 3, "limit": 8}),
        ({"weight": 2, "limit": 8}, {"weight": 1}, {}, {"limit": 8}),
        ({}, {"weight": 1}, {"weight": 1}, {}),
        ({"limit": 8}, {}, {"limit": 4}, {"limit": 4}),
    ],
)
def test_a_field_changes_where_the_file_has_changed_it(
    document: dict[str, Any], applied: dict[str, Any], text: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merged(document, applied, text) == expected


def test_the_same_file_again_leaves_what_was_changed_since() -> None:
    book = edited(filed(vision={"guarantee": 6}), "vision", {"guarantee": 4})
    again = book.with_file({"vision": {"guarantee": 6}}, facts("vision"), 3.0)
    assert again == book
    book = again.with_file({"vision": {"guarantee": 6, "weight": 2}}, facts("vision"), 3.0)
    assert said(book, "vision") == {"guarantee": 4, "weight": 2}
    assert book.rows["vision"].version == 3
    book = book.with_file({"vision": {"guarantee": 5, "weight": 2}}, facts("vision"), 3.0)
    assert said(book, "vision") == {"guarantee": 5, "weight": 2}


def test_a_queue_that_was_deleted_stays_so_until_the_file_says_something_else_of_it() -> None:
    book = edited(filed(vision={"guarantee": 6}), "vision", None)
    assert said(book.with_file({"vision": {"guarantee": 6}}, NOTHING_KNOWN, 3.0), "vision") is None
    back = book.with_file({"vision": {"guarantee": 7}}, NOTHING_KNOWN, 3.0)
    assert (said(back, "vision"), back.rows["vision"].version) == ({"guarantee": 7}, 3)


def test_what_the_file_has_no_more_is_deleted_from_the_leaves_up() -> None:
    book = filed(lab={}, vision={"parent": "lab"}, speech={})
    left = book.with_file({"speech": {}}, facts("lab", "lab/vision", "speech"), 3.0)
    assert (said(left, "lab"), said(left, "vision"), said(left, "speech")) == (None, None, {})
    events = left.events(
        read_queues(left.documents(facts("lab", "lab/vision", "speech"))), facts("lab", "lab/vision"), 3.0
    )
    assert events[:2] == [QueueRemoved(3.0, "vision"), QueueRemoved(3.0, "lab")]


@pytest.mark.parametrize(
    "use", [{"jobs": {"vision": 1}}, {"owners": {"vision": "seers"}}, {"reservations": {"vision": "demo"}}]
)
def test_what_the_file_has_no_more_stays_with_all_above_it_while_something_uses_it(use: dict[str, Any]) -> None:
    book, known = filed(lab={}, vision={"parent": "lab", "guarantee": 2}), facts("lab", "lab/vision", **use)
    kept = book.with_file({}, known, 3.0)
    assert (said(kept, "lab"), said(kept, "vision")) == ({}, {"parent": "lab", "guarantee": 2})
    assert kept.left_over({}) == ["lab", "vision"]
    unused = kept.with_file({}, facts("lab", "lab/vision"), 4.0)
    assert (said(unused, "lab"), said(unused, "vision"), unused.left_over({})) == (None, None, [])


def test_a_queue_that_was_added_by_a_request_is_none_of_the_files_business() -> None:
    book = QueueBook().with_row(QueueRow("vision", {"guarantee": 2}, None, 1, "ada", 1.0))
    assert book.with_file({}, facts("vision"), 3.0) == book


def test_only_what_differs_is_reported_to_the_scheduler() -> None:
    book = filed(lab={}, vision={"parent": "lab"})
    queues = read_queues(book.documents(NOTHING_KNOWN))
    assert book.events(queues, facts("lab", "lab/vision"), 3.0) == []
    assert book.events(queues, facts("lab"), 3.0) == [QueueChanged(3.0, Queue("vision", "lab"))]


def test_the_queue_of_a_group_is_left_as_the_scheduler_knows_it() -> None:
    known = facts("vision", owners={"vision": "vision"})
    book = QueueBook()
    assert book.documents(known) == {"default": {"parent": "root"}, "vision": {"parent": "root"}}
    assert book.events(read_queues(book.documents(known)), known, 1.0) == []


def test_a_queue_whose_jobs_have_not_ended_gets_no_queue_below_it() -> None:
    book = filed(vision={}, max={"parent": "vision"})
    known = facts("vision", jobs={"vision": 2})
    with pytest.raises(ConflictError, match="2 jobs of it have not ended, and it would take no jobs"):
        book.events(read_queues(book.documents(known)), known, 1.0)
