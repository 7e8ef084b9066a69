"""How long a request waits before it is sent again, and when it is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import httpx2
import msgspec
import pytest

from millpond.engines.kubernetes.cluster import reflector as reflector_module
from millpond.engines.kubernetes.cluster.api_channel import ApiAnswer, ApiChannel, ErrorAnswerError
from millpond.engines.kubernetes.cluster.cluster_api import LATE_ANSWERS, MOST_AT_ONCE, ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError, may_be_mended
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, Reflector
from millpond.engines.kubernetes.cluster.request_turns import BINDING, CHANGE, WORDS, RequestTurn, making_for

DONE = ApiAnswer(200, "OK", b"{}")
LATE = httpx2.ReadTimeout("no answer in time")
AWAY = httpx2.ConnectError("away")


def busy(retry_after_s: float) -> ApiAnswer:
    return ApiAnswer(429, "Too Many Requests", b"{}", retry_after_s)


class _Answers(ApiChannel):
    """An API server that gives these answers, one after the other."""

    def __init__(self, answers: Sequence[ApiAnswer | Exception]) -> None:
        self._answers = list(answers)

    async def request(self, *_words: object, **_more: object) -> ApiAnswer:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _held() -> None:
    """This process has the lease."""


def waits_of(
    patch: pytest.MonkeyPatch,
    answers: Sequence[ApiAnswer | Exception],
    turn: RequestTurn = CHANGE,
    method: str = "POST",
    at_once: int = 1,
) -> list[float]:
    """The pauses between so many like requests at once, until they are answered."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    async def ask() -> None:
        api = ClusterApi(_Answers(answers), "team", _held)
        await asyncio.gather(*(api.ask(method, "/api/v1/namespaces/team/pods", turn=turn) for _ in range(at_once)))

    with patch.context() as patched:
        patched.setattr(asyncio, "sleep", noted)
        asyncio.run(ask())
    return waited


def page(go_on: str) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": go_on}, "items": []})


class _Parts(ApiChannel):
    """An API server that has these parts of lists, and follows nothing."""

    def __init__(self, parts: Sequence[bytes | ApiAnswer]) -> None:
        self._parts = list(parts)

    async def get(self, *_words: object) -> bytes:
        part = self._parts.pop(0)
        if isinstance(part, ApiAnswer):
            raise ErrorAnswerError(part)
        return part

    async def follow(self, *_words: object) -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""


def reflector_of(parts: Sequence[bytes | ApiAnswer]) -> Reflector[PodObject]:
    return Reflector(_Parts(parts), ObjectKind("/api/v1/pods", PodObject), print, print)


@pytest.mark.parametrize(("asked_s", "waits_s"), [(7.0, 7.0), (600.0, 60.0), (0.0, 0.2)])
def test_the_next_part_of_a_list_is_asked_for_when_the_cluster_says(
    monkeypatch: pytest.MonkeyPatch, asked_s: float, waits_s: float
) -> None:
    waited: list[float] = []

    async def noted(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(reflector_of([page("more"), busy(asked_s), page("")]).list_once())
    assert waited == [waits_s]


def test_a_list_whose_rest_is_too_old_is_trouble_until_one_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "_FIRST_WAIT_S", 0.0)
    old = ApiAnswer(410, "Gone", b'{"code": 410, "message": "The provided continue parameter is too old"}')

    async def troubles() -> list[str]:
        reflector = reflector_of([page("more"), old, page("")])
        following = asyncio.create_task(reflector.run())
        async with asyncio.timeout(30):
            while not reflector.trouble:
                await asyncio.sleep(0)
        seen = [reflector.trouble]
        await reflector.ready.wait()
        following.cancel()
        return [*seen, reflector.trouble]

    assert asyncio.run(troubles()) == ["The provided continue parameter is too old", ""]


@pytest.mark.parametrize(
    ("turn", "asked_s", "waits_s"),
    [
        (CHANGE, 7.0, 7.0),
        (CHANGE, 600.0, 30.0),
        (making_for("train-abcde"), 600.0, 30.0),
        (BINDING, 600.0, 10.0),
        (WORDS, 600.0, 60.0),
    ],
)
def test_a_request_waits_for_as_long_as_the_cluster_asks_for_up_to_a_bound_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, turn: RequestTurn, asked_s: float, waits_s: float
) -> None:
    assert waits_of(monkeypatch, [busy(asked_s), DONE], turn) == [waits_s]


def test_others_go_on_while_as_many_as_may_be_sent_at_once_wait_for_the_time_that_the_cluster_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [busy(30.0)] * MOST_AT_ONCE + [DONE] * (MOST_AT_ONCE + 1)
    assert waits_of(monkeypatch, answers, at_once=MOST_AT_ONCE + 1) == [30.0] * MOST_AT_ONCE


def test_what_is_never_answered_in_time_is_given_up_and_says_what_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StatusError, match="admission webhook") as given_up:
        waits_of(monkeypatch, [LATE] * LATE_ANSWERS)
    assert may_be_mended(given_up.value), "it is tried again"


@pytest.mark.parametrize(
    ("method", "answers"),
    [
        ("POST", [*[LATE] * (LATE_ANSWERS - 1), AWAY, *[LATE] * (LATE_ANSWERS - 1), DONE]),
        ("POST", [*[LATE] * (LATE_ANSWERS - 1), busy(0), *[LATE] * (LATE_ANSWERS - 1), DONE]),
        ("DELETE", [*[LATE] * 3 * LATE_ANSWERS, DONE]),
    ],
)
def test_an_api_server_that_is_away_between_or_asks_for_patience_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, method: str, answers: Sequence[ApiAnswer | Exception]
) -> None:
    assert len(waits_of(monkeypatch, answers, method=method)) == len(answers) - 1
