"""Of requests that wait, what ends a start goes before what begins one, and no kind waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pod_bench import PodBench, eventually, start
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.cluster.cluster_api import MOST_AT_ONCE
from millpond.engines.kubernetes.cluster.request_turns import (
    BINDING,
    CHANGE,
    LEAST_URGENT_EVERY,
    WORDS,
    RequestTurn,
    RequestTurns,
    making_for,
)


def order_of(waiting: Sequence[tuple[str, RequestTurn]], gives_up: Sequence[str] = ()) -> list[str]:
    """The names of requests in the order in which they go, one at a time; all of them wait when the first may."""
    went: list[str] = []

    async def request(turns: RequestTurns, name: str, turn: RequestTurn) -> None:
        await turns.take(turn)
        went.append(name)
        await asyncio.sleep(0)
        turns.give_back()

    async def run() -> None:
        turns = RequestTurns(1)
        await turns.take(CHANGE)
        tasks = {name: asyncio.create_task(request(turns, name, turn)) for name, turn in waiting}
        await asyncio.sleep(0)
        for name in gives_up:
            tasks[name].cancel()
        turns.give_back()
        for name in gives_up:  # some when it is their turn already
            tasks[name].cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await asyncio.wait_for(turns.take(CHANGE), 60.0)  # no place was lost

    asyncio.run(run())
    return went


def test_bindings_go_first_and_words_last() -> None:
    waiting = [("word", WORDS), ("make", making_for("train-abcde")), ("stop", CHANGE), ("bind", BINDING)]
    assert order_of(waiting) == ["bind", "stop", "make", "word"]


def test_words_come_through_however_many_bindings_wait() -> None:
    went = order_of([("word", WORDS), *((f"bind-{number}", BINDING) for number in range(3 * LEAST_URGENT_EVERY))])
    assert went.index("word") < LEAST_URGENT_EVERY


def test_arrays_and_jobs_by_themselves_take_turns() -> None:
    array = [(f"a{number}", making_for(f"sweep-abcde[{number}]")) for number in range(5)]
    gang = [(f"g{number}", making_for("gang-abcde")) for number in range(2)]
    assert order_of([*array, *gang]) == ["a0", "g0", "a1", "g1", "a2", "a3", "a4"]


def test_one_that_is_given_up_while_it_waits_takes_no_place() -> None:
    waiting = [(name, BINDING) for name in ("a", "b", "c")]
    assert order_of(waiting, gives_up=["a", "b"]) == ["c"]


def test_a_later_gang_is_bound_before_all_pods_of_an_array_are_made(cluster: StandinCluster, bench: PodBench) -> None:
    members = 4 * MOST_AT_ONCE
    array = [start(number, job=f"sweep-abcde[{number}]", cards=0) for number in range(1, members + 1)]
    bench.engine.apply([*array, start(members + 1, job="gang-abcde", nodes=["n1"] * 4, cards=0)])
    eventually(lambda: sum(request.endswith("/binding") for request in list(cluster.requests)) == members + 4)
    requests = list(cluster.requests)
    bound = max(place for place, request in enumerate(requests) if "gang-abcde" in request and "binding" in request)
    made_after = [request for request in requests[bound:] if request.startswith("POST") and request.endswith("/pods")]
    assert len(made_after) > members / 4
    first_bound = next(place for place, request in enumerate(requests) if request.endswith("/binding"))
    made_before = [each for each in requests[:first_bound] if each.startswith("POST") and each.endswith("/pods")]
    assert len(made_before) < members
