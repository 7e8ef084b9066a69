"""The queues that the overview lists, where there are hundreds."""

from __future__ import annotations

from millpond.server.web.pool.overview_page import busiest
from millpond.specs.api.pool.queues import QueueInfo


def queue(number: int, held: int = 0, wanted: int = 0) -> QueueInfo:
    return QueueInfo(name=f"q{number}", takes_jobs=True, gpu_milli=held, waiting_gpu_milli=wanted)


def test_few_queues_are_all_listed_without_those_that_take_no_jobs() -> None:
    queues = [QueueInfo(name="root", takes_jobs=False), *(queue(number) for number in range(30))]
    assert busiest(queues) == queues[1:]


def test_of_many_queues_those_are_listed_that_hold_and_want_most_cards_in_the_order_of_the_tree() -> None:
    queues = [queue(number) for number in range(300)]
    queues[7], queues[200], queues[299] = queue(7, held=1_000), queue(200, wanted=8_000), queue(299, held=500)
    shown = busiest(queues)
    assert len(shown) == 30
    assert [each.name for each in shown if each.gpu_milli or each.waiting_gpu_milli] == ["q7", "q200", "q299"]
