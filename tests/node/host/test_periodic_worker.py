"""The thread behind all periodic work: when it works, what it survives, how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

import pytest

from millpond.model.errors import UnavailableError
from millpond.node.host.periodic_worker import UNTIL_WOKEN, PeriodicWorker, for_each

LONG_S = 3_600.0
WITHIN_S = 60.0


class Passes:
    """What a worker does, pass by pass; ``seen`` gets each number."""

    def __init__(self, outcomes: Sequence[float | Exception | None]) -> None:
        self.seen: SimpleQueue[int] = SimpleQueue()
        self._outcomes = iter(outcomes)
        self._number = 0

    def __call__(self) -> float | None:
        self._number += 1
        self.seen.put(self._number)
        outcome = next(self._outcomes, UNTIL_WOKEN)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


Workers = Callable[..., tuple[PeriodicWorker, Passes]]


@pytest.fixture
def started() -> Iterator[Workers]:
    workers: list[PeriodicWorker] = []

    def start(*outcomes: float | Exception | None, every_s: float = 0.0) -> tuple[PeriodicWorker, Passes]:
        passes = Passes(outcomes)
        worker = PeriodicWorker("test", passes, every_s, "it cannot be measured")
        workers.append(worker)
        worker.start()
        return worker, passes

    yield start
    for worker in workers:
        assert worker.close(WITHIN_S)


def test_it_works_at_once_and_then_after_each_pause(started: Workers) -> None:
    _, passes = started(None, 0.0, UNTIL_WOKEN)
    assert [passes.seen.get(timeout=WITHIN_S) for _ in range(3)] == [1, 2, 3]


def test_the_first_pass_comes_when_it_is_said() -> None:
    passes = Passes(())
    worker = PeriodicWorker("test", passes, LONG_S, "trouble")
    worker.start(LONG_S)
    assert passes.seen.empty()
    worker.wake()
    assert passes.seen.get(timeout=WITHIN_S) == 1
    assert worker.close(WITHIN_S)


def test_it_works_when_it_is_woken(started: Workers) -> None:
    worker, passes = started(UNTIL_WOKEN, LONG_S)
    for number in (1, 2, 3):
        assert passes.seen.get(timeout=WITHIN_S) == number
        worker.wake()


def test_a_wake_during_a_pass_is_not_lost() -> None:
    passes: SimpleQueue[int] = SimpleQueue()

    def work() -> float:
        passes.put(1)
        if passes.qsize() == 1:
            worker.wake()
        return UNTIL_WOKEN

    worker = PeriodicWorker("test", work, LONG_S, "trouble")
    worker.start()
    passes.get(timeout=WITHIN_S)
    passes.get(timeout=WITHIN_S)
    assert worker.close(WITHIN_S)


def test_it_goes_on_after_an_error_and_logs_it_once_until_it_changes(
    started: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        gone = UnavailableError("gone", "wait")
        _, passes = started(gone, gone, OSError("full"), None, gone, RuntimeError("inside"))
        for _ in range(7):
            passes.seen.get(timeout=WITHIN_S)
    told = [record.getMessage() for record in caplog.records]
    said = "it cannot be measured: gone"
    assert [text.splitlines()[0][: len(said)] for text in told] == [
        said,
        "it cannot be measured: full",
        said,
        said[:21],
    ]
    assert [record.exc_info is not None for record in caplog.records] == [False, False, False, True]


def test_an_error_without_words_is_logged_by_its_name(started: Workers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _, passes = started(TimeoutError(), TimeoutError(), None)
        for _ in range(4):
            passes.seen.get(timeout=WITHIN_S)
    assert [record.getMessage() for record in caplog.records] == ["it cannot be measured: TimeoutError"]


def test_closing_waits_for_a_pass_no_longer_than_said() -> None:
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(WITHIN_S)

    worker = PeriodicWorker("test", work, LONG_S, "trouble")
    worker.start()
    assert begun.wait(WITHIN_S)
    assert not worker.close(0.0)
    assert worker.closing
    release.set()
    assert worker.close(WITHIN_S)


def test_one_that_was_never_started_is_closed_at_once() -> None:
    assert PeriodicWorker("test", lambda: None, LONG_S, "trouble").close()


def test_an_item_that_fails_keeps_none_of_the_others_waiting_and_is_told_at_the_end() -> None:
    done = []

    def work(number: int) -> None:
        done.append(12 // number)

    with pytest.raises(ZeroDivisionError):
        for_each([1, 0, 2, 0, 3], work)
    assert done == [12, 6, 4]
